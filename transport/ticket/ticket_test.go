package ticket_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"github.com/elrun/elrun/transport/ticket"
)

const relayed = "/ip4/192.0.2.9/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN/p2p-circuit/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"

func sample(t testing.TB, addrs ...string) ticket.Ticket {
	t.Helper()
	k, err := ticket.New("mnist", ticket.IdentityOf("mnist", "root"), [ticket.SeedSize]byte{1}, time.Unix(1_800_000_000, 5), addrs)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRoundTrip(t *testing.T) {
	addr := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			return fmt.Sprintf("/ip4/192.0.2.%d/tcp/%d", rapid.IntRange(0, 3).Draw(t, "ip"), rapid.Uint16().Draw(t, "port"))
		case 1:
			return fmt.Sprintf("/ip6/2001:db8::%x/tcp/%d", rapid.IntRange(1, 3).Draw(t, "ip"), rapid.Uint16().Draw(t, "port"))
		case 2:
			return relayed
		}
		return fmt.Sprintf("/ip4/192.0.2.1/udp/%d/quic-v1", rapid.Uint16().Draw(t, "port"))
	})
	rapid.Check(t, func(t *rapid.T) {
		want, err := ticket.New(rapid.StringN(1, 20, 200).Draw(t, "job"), ticket.Identity(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "identity")),
			[ticket.SeedSize]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "seed")),
			time.Unix(rapid.Int64Range(1, 1<<40).Draw(t, "expiry"), 5), rapid.SliceOfN(addr, 1, ticket.MaxAddrs).Draw(t, "addrs"))
		if err != nil {
			t.Fatal(err)
		}
		line := want.String()
		if strings.ContainsAny(line, " \t\n\"'$\\") {
			t.Fatalf("%q is hard to copy", line)
		}
		got, err := ticket.Parse(" " + line[:20] + "\n" + line[20:] + "\n")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// A ticket with two addresses fits on a line.
func TestShort(t *testing.T) {
	for want, addrs := range map[int][]string{
		79:  {"/ip4/192.0.2.1/tcp/40001", "/ip4/198.51.100.1/tcp/40001"},
		111: {"/ip6/2001:db8::1/tcp/40001", "/ip6/2001:db8:ffff::1/tcp/40001"},
		71:  {"/ip4/192.0.2.1/tcp/40001"},
		87:  {"/ip4/192.0.2.1/tcp/40001", "/ip4/192.0.2.1/tcp/40002", "/ip4/192.0.2.1/tcp/40003", "/ip4/192.0.2.1/tcp/40004", "/ip4/192.0.2.1/tcp/40005"},
	} {
		if line := sample(t, addrs...).String(); len(line) > 120 || len(line) > want {
			t.Errorf("%d addresses: %d characters, want at most %d: %s", len(addrs), len(line), want, line)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	near := []string{"/ip4/127.0.0.1/tcp/1"}
	for name, try := range map[string]struct {
		job   string
		at    int64
		addrs []string
	}{
		"long job": {strings.Repeat("j", 256), 1, near}, "no job": {"", 1, near}, "no expiry": {"j", 0, near}, "no address": {"j", 1, nil},
		"bad address": {"j", 1, []string{"x"}}, "long address": {"j", 1, []string{strings.Repeat(relayed, 3)}},
	} {
		if k, err := ticket.New(try.job, ticket.Identity{}, [ticket.SeedSize]byte{}, time.Unix(try.at, 0), try.addrs); err == nil {
			t.Errorf("%s: made %v", name, k)
		}
	}
}

// A line that was cut or changed in one character is refused.
func TestParseRefuses(t *testing.T) {
	line := sample(t, "/ip4/192.0.2.1/tcp/40001", relayed).String()
	for name, bad := range map[string]string{
		"empty": "", "another": "elrun3." + line[7:], "old": "elrun1." + line[7:], "cut": line[:len(line)-1], "cut in half": line[:len(line)/2],
		"two": line + line, "longer": line + "A", "not base64": "elrun2.!!!!", "nothing": "elrun2.", "above the size": "elrun2." + strings.Repeat("A", ticket.MaxLine),
	} {
		if _, err := ticket.Parse(bad); !errors.Is(err, ticket.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := len("elrun2."); i < len(line); i++ {
		c := byte('A')
		if line[i] == c {
			c = 'B'
		}
		if _, err := ticket.Parse(line[:i] + string(c) + line[i+1:]); !errors.Is(err, ticket.ErrFormat) {
			t.Fatalf("character %d changed: %v", i, err)
		}
	}
}

// FuzzParse checks that a line which can be parsed is written again as the same line.
func FuzzParse(f *testing.F) {
	f.Add(sample(f, "/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/2", "/ip6/::1/tcp/1", relayed).String())
	f.Add("elrun2.")
	f.Fuzz(func(t *testing.T, line string) {
		k, err := ticket.Parse(line)
		if err != nil {
			return
		}
		if again, err := ticket.Parse(k.String()); err != nil || !reflect.DeepEqual(again, k) {
			t.Errorf("%+v comes out as %+v, %v", k, again, err)
		}
	})
}

// A sealed record can be opened only as its issuer has signed it.
func TestRecord(t *testing.T) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	want := ticket.Record{Root: ticket.SignerOf([]byte("root")).ID, Key: ticket.SignerOf([]byte("seed")).ID, Job: strings.Repeat("j", 40), Made: 5, Expiry: 1 << 40, Uses: 1 << 40}
	b, err := want.Seal(key)
	if err != nil || len(b) > 512 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	got, issuer, err := ticket.Open(b)
	if err != nil || got != want || issuer != id.String() {
		t.Errorf("got %+v of %s, %v", got, issuer, err)
	}
	for i := range b {
		b[i] ^= 1
		if r, who, err := ticket.Open(b); err == nil && (r != want || who != issuer) {
			t.Fatalf("byte %d changed: %+v of %s", i, r, who)
		}
		b[i] ^= 1
	}
}

func TestRecordCheck(t *testing.T) {
	r := ticket.Record{Expiry: 1000, Uses: 2}
	for want, is := range map[ticket.Decision][]ticket.Decision{
		ticket.In:      {r.Check(0, time.Unix(1000, 0)), r.Check(1, time.Unix(1, 0)), ticket.Record{Expiry: 1000}.Check(99, time.Unix(1, 0)), ticket.Record{}.Check(0, time.Unix(1<<40, 0))},
		ticket.Expired: {r.Check(0, time.Unix(1001, 0)), r.Check(2, time.Unix(1001, 0))},
		ticket.UsedUp:  {r.Check(2, time.Unix(1000, 0)), r.Check(3, time.Unix(1, 0))},
	} {
		for i, got := range is {
			if got != want {
				t.Errorf("%d of %d: %d", i, want, got)
			}
		}
	}
}

// A claim is valid only for the newcomer for which it was made, and with its signer's key.
func TestClaim(t *testing.T) {
	s, other := ticket.SignerOf([]byte("seed")), ticket.SignerOf([]byte("seed2"))
	c := s.Claim("new")
	altered := c
	altered.Signature[5] ^= 1
	for name, test := range map[string]struct {
		claim            ticket.Claim
		signer, newcomer string
		want             bool
	}{
		"right":            {c, s.ID, "new", true},
		"made elsewhere":   {ticket.ClaimOf(s.ID, s.Sign([]byte("elrun newcomer\nnew"))), s.ID, "new", true},
		"another newcomer": {c, s.ID, "thief", false},
		"another signer":   {c, other.ID, "new", false},
		"renamed":          {ticket.ClaimOf(other.ID, c.Signature[:]), other.ID, "new", false},
		"altered":          {altered, s.ID, "new", false},
		"no signer":        {c, "nobody", "new", false},
	} {
		if got := test.claim.Proves(test.signer, test.newcomer); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if a := s.Admit("new", s.Credential("j", ticket.Identity{}, "new").Request); a.Decision != ticket.In {
		t.Errorf("got %+v", a)
	}
	if a := s.Admit("new", other.Credential("j", ticket.Identity{}, "new").Request); a.Decision != ticket.Unknown {
		t.Errorf("got %+v", a)
	}
}

func TestRequestRoundTrip(t *testing.T) {
	s := ticket.SignerOf([]byte("seed"))
	for _, c := range []ticket.Credential{{}, s.Credential("job", ticket.Identity{1}, "new"),
		s.Credential("job", ticket.Identity{1}, "new").With(s.Claim("other"), s.ID)} {
		if got := ticket.DecodeRequest(c.Encode()); !reflect.DeepEqual(got, c.Request) {
			t.Errorf("got %+v, want %+v", got, c.Request)
		}
	}
}

// A newcomer accepts an answer only if it comes, unchanged, from a member that knows the key of the newcomer's ticket.
func TestAnswer(t *testing.T) {
	signers := []string{ticket.SignerOf([]byte("a")).ID, ticket.SignerOf([]byte("b")).ID}
	right := ticket.Answer{Decision: ticket.In, Claim: 1, Signer: signers[1], Clock: 5}
	for name, test := range map[string]struct {
		encoded [ticket.AnswerSize]byte
		want    bool
	}{
		"right":             {right.Encode("old", "new"), true},
		"another member":    {right.Encode("other", "new"), false},
		"another newcomer":  {right.Encode("old", "other"), false},
		"sent back":         {right.Encode("new", "old"), false},
		"another key":       {ticket.Answer{Decision: ticket.In, Claim: 1, Signer: signers[0], Clock: 5}.Encode("old", "new"), false},
		"no such claim":     {ticket.Answer{Decision: ticket.In, Claim: 2, Signer: signers[1]}.Encode("old", "new"), false},
		"unknown":           {ticket.Answer{Decision: ticket.Unknown}.Encode("old", "new"), true},
		"nothing":           {[ticket.AnswerSize]byte{}, false},
		"no decision":       {[ticket.AnswerSize]byte{99}, false},
		"in without proof":  {[ticket.AnswerSize]byte{byte(ticket.In)}, false},
		"used up, no proof": {[ticket.AnswerSize]byte{byte(ticket.UsedUp)}, false},
	} {
		if got := ticket.DecodeAnswer(test.encoded).Of(signers, "old", "new"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	b := right.Encode("old", "new")
	b[0] = byte(ticket.Expired) // changed on the way
	if ticket.DecodeAnswer(b).Of(signers, "old", "new") {
		t.Error("an altered answer was accepted")
	}
}

// Each refusal has its own message, on one line, which says what the user can do.
func TestAnswerErr(t *testing.T) {
	now, seen := time.Unix(2_000_000_000, 0), map[string]bool{}
	for decision, want := range map[ticket.Decision]error{
		ticket.Expired: ticket.ErrExpired, ticket.UsedUp: ticket.ErrUsedUp, ticket.Revoked: ticket.ErrRevoked, ticket.Kicked: ticket.ErrKicked,
		ticket.OtherJob: ticket.ErrOtherJob, ticket.Ended: ticket.ErrEnded, ticket.Unknown: ticket.ErrUnknown,
	} {
		err := ticket.Answer{Decision: decision, Clock: 2_000_000_100, Expiry: 2_000_000_000}.Err(now)
		text := fmt.Sprint(err)
		if !errors.Is(err, want) || len(text) > 180 || strings.Contains(text, "\n") || !strings.Contains(text, "ask ") || seen[text] {
			t.Errorf("%d: %d characters: %s", decision, len(text), text)
		}
		seen[text] = true
	}
	if err := (ticket.Answer{Decision: ticket.In}).Err(now); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	c := ticket.SignerOf([]byte("s")).Credential("job", ticket.Identity{1}, "new")
	request, answer := c.Encode(), ticket.Answer{Decision: ticket.In, Signer: "x"}.Encode("old", "new")
	f.Add(request[:], answer[:])
	f.Fuzz(func(t *testing.T, q, a []byte) {
		var request [ticket.RequestSize]byte
		copy(request[:], q)
		r := ticket.DecodeRequest(request)
		if again := ticket.DecodeRequest(r.Encode()); !reflect.DeepEqual(again, r) {
			t.Errorf("%+v comes out as %+v", r, again)
		}
		var answer [ticket.AnswerSize]byte
		copy(answer[:], a)
		got := ticket.DecodeAnswer(answer)
		if got.Of([]string{"nobody knows this"}, "old", "new") && got.Decision <= ticket.Revoked {
			t.Errorf("believed %+v", got)
		}
		_ = got.Err(time.Unix(0, 0))
	})
}
