package ticket_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/transport/ticket"
)

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, ticket.KeySize) }

func contacts() []ticket.Contact {
	return []ticket.Contact{{ID: "a", Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}, {ID: "b"}}
}

func sample(t testing.TB, expiry time.Time) ticket.Ticket {
	t.Helper()
	k, err := ticket.New(secret(1), "job", expiry, contacts())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRoundTrip(t *testing.T) {
	text := rapid.StringN(1, 50, 200)
	rapid.Check(t, func(t *rapid.T) {
		var all []ticket.Contact
		for range rapid.IntRange(1, ticket.MaxContacts).Draw(t, "contacts") {
			all = append(all, ticket.Contact{ID: text.Draw(t, "id"),
				Addrs: rapid.SliceOfN(text, 0, 3).Draw(t, "addrs")})
		}
		expiry := time.Unix(rapid.Int64Range(1, 1<<40).Draw(t, "expiry"), 5)
		want, err := ticket.New(secret(7), text.Draw(t, "job"), expiry, all)
		if err != nil {
			t.Fatal(err)
		}
		line := want.String()
		if len(line) > ticket.MaxLine {
			return // contacts with long names: Parse refuses it
		}
		if strings.ContainsAny(line, " \t\n\"'$\\") {
			t.Fatalf("%q is hard to copy", line)
		}
		got, err := ticket.Parse(" " + line + "\n")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// What is too much is left out by New, so that every ticket that it makes can be read.
func TestNewCuts(t *testing.T) {
	many := ticket.Contact{ID: "a", Addrs: make([]string, 40)}
	for i := range many.Addrs {
		many.Addrs[i] = fmt.Sprintf("/ip4/192.0.2.%d/tcp/65535", i)
	}
	var all []ticket.Contact
	for range 100 {
		all = append(all, many)
	}
	k, err := ticket.New(secret(1), strings.Repeat("j", 255), time.Unix(1, 0), all)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ticket.Parse(k.String())
	if err != nil || len(got.Contacts) != ticket.MaxContacts || len(got.Contacts[0].Addrs) != ticket.MaxAddrs {
		t.Errorf("%d contacts, %v", len(got.Contacts), err)
	}
}

func TestNewRefuses(t *testing.T) {
	later := time.Unix(1, 0)
	for name, try := range map[string]func() (ticket.Ticket, error){
		"short secret": func() (ticket.Ticket, error) { return ticket.New(secret(1)[1:], "j", later, contacts()) },
		"long job": func() (ticket.Ticket, error) {
			return ticket.New(secret(1), strings.Repeat("j", 256), later, contacts())
		},
		"no expiry": func() (ticket.Ticket, error) { return ticket.New(secret(1), "j", time.Unix(0, 0), contacts()) },
		"nobody":    func() (ticket.Ticket, error) { return ticket.New(secret(1), "j", later, nil) },
		"no ID":     func() (ticket.Ticket, error) { return ticket.New(secret(1), "j", later, make([]ticket.Contact, 1)) },
	} {
		if k, err := try(); err == nil {
			t.Errorf("%s: made %v", name, k)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	line := sample(t, time.Unix(1, 0)).String()
	if _, err := ticket.Parse(line[:50] + "\n" + line[50:]); err != nil {
		t.Errorf("a line that a terminal has wrapped: %v", err)
	}
	for name, bad := range map[string]string{
		"empty":          "",
		"another":        "elrun2." + line[7:],
		"cut":            line[:len(line)-1],
		"cut in half":    line[:len(line)/2],
		"two":            line + line,
		"longer":         line + "A",
		"not base64":     "elrun1.!!!!",
		"not an object":  "elrun1.MQ",
		"empty object":   "elrun1.e30",
		"above the size": "elrun1." + strings.Repeat("A", ticket.MaxLine),
	} {
		if _, err := ticket.Parse(bad); !errors.Is(err, ticket.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The member recognises what was made of its secret, and nothing else.
func TestCheck(t *testing.T) {
	expiry := time.Unix(1000, 0)
	good := sample(t, expiry).Proof().Claim("new", "old")
	tests := map[string]struct {
		change func(c *ticket.Claim)
		secret []byte
		job    string
		now    time.Time
		want   error
	}{
		"good":           {nil, secret(1), "job", expiry, nil},
		"late":           {nil, secret(1), "job", expiry.Add(time.Second), ticket.ErrExpired},
		"other secret":   {nil, secret(2), "job", expiry, ticket.ErrWrong},
		"other job":      {nil, secret(1), "jobs", expiry, ticket.ErrWrong},
		"other newcomer": {func(c *ticket.Claim) { c.Newcomer = "thief" }, secret(1), "job", expiry, ticket.ErrWrong},
		"other member":   {func(c *ticket.Claim) { c.Member = "older" }, secret(1), "job", expiry, ticket.ErrWrong},
		"swapped":        {func(c *ticket.Claim) { c.Newcomer, c.Member = c.Member, c.Newcomer }, secret(1), "job", expiry, ticket.ErrWrong},
		"moved":          {func(c *ticket.Claim) { c.Newcomer, c.Member = "newo", "ld" }, secret(1), "job", expiry, ticket.ErrWrong},
		"prolonged":      {func(c *ticket.Claim) { c.Expiry++ }, secret(1), "job", expiry, ticket.ErrWrong},
		"for ever":       {func(c *ticket.Claim) { c.Expiry = 0 }, secret(1), "job", expiry, ticket.ErrWrong},
		"altered":        {func(c *ticket.Claim) { c.MAC[31] ^= 1 }, secret(1), "job", expiry, ticket.ErrWrong},
	}
	for name, test := range tests {
		c := good
		if test.change != nil {
			test.change(&c)
		}
		if _, err := c.Check(test.secret, test.job, test.now); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// Both sides end with the same answer; it is not what the newcomer had sent.
func TestMutual(t *testing.T) {
	for name, p := range map[string]ticket.Proof{
		"ticket": sample(t, time.Unix(1000, 0)).Proof(),
		"secret": ticket.BySecret(secret(1)),
	} {
		c := ticket.DecodeClaim(p.Claim("new", "old").Encode(), "new", "old")
		q, err := c.Check(secret(1), "job", time.Unix(10, 0))
		if err != nil || q.Member("new", "old") != p.Member("new", "old") {
			t.Errorf("%s: %v", name, err)
		}
		if p.Member("new", "old").Equal(c.MAC) || p.Member("old", "new").Equal(c.MAC) {
			t.Errorf("%s: the newcomer's own words are an answer", name)
		}
	}
}

// Whatever parses is within the limits and comes out again as it was.
func FuzzParse(f *testing.F) {
	f.Add(sample(f, time.Unix(1, 0)).String())
	f.Add("elrun1.e30")
	f.Add("elrun1.")
	f.Fuzz(func(t *testing.T, line string) {
		k, err := ticket.Parse(line)
		if err != nil {
			return
		}
		if len(k.Contacts) > ticket.MaxContacts || len(k.Key) != ticket.KeySize {
			t.Fatalf("accepted %+v", k)
		}
		again, err := ticket.Parse(k.String())
		if err != nil || again.String() != k.String() {
			t.Fatalf("%+v became %+v, %v", k, again, err)
		}
	})
}

// No bytes are a claim that holds, and those of one come out again.
func FuzzClaim(f *testing.F) {
	good := sample(f, time.Unix(1000, 0)).Proof().Claim("new", "old")
	b := good.Encode()
	f.Add(b[:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		var b [ticket.ClaimSize]byte
		copy(b[:], in)
		c := ticket.DecodeClaim(b, "new", "old")
		if c.Encode() != b {
			t.Fatalf("%x became %x", b, c.Encode())
		}
		if _, err := c.Check(secret(1), "job", time.Unix(0, 0)); err == nil && c != good {
			t.Fatalf("%x was believed", b)
		}
	})
}

// A ticket as a launcher makes it, and as the one who joins reads it.
func ExampleNew() {
	secret := make([]byte, ticket.KeySize) // of random bytes, in earnest
	contacts := []ticket.Contact{{ID: "12D3KooW", Addrs: []string{"/ip4/192.0.2.1/tcp/4001"}}}
	t, err := ticket.New(secret, "mnist", time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), contacts)
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err = ticket.Parse(t.String())
	fmt.Println(t.Job, t.Expiry.Year(), t.Contacts, err)
	// Output: mnist 2030 [{12D3KooW [/ip4/192.0.2.1/tcp/4001]}] <nil>
}
