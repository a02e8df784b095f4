package discovery

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
)

// of returns the keys that are derived from a job's key.
func of(t interface{ Fatal(...any) }, key string) keys {
	k, err := deriveKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// member returns a member with n addresses.
func member(id string, n int) elastic.Member {
	m := elastic.Member{ID: elastic.ID(id)}
	for i := range n {
		m.Addrs = append(m.Addrs, fmt.Sprintf("/ip4/192.0.2.%d/tcp/7", i+1))
	}
	return m
}

// A record has a fixed size, and contains as many of the members as fit. Without the key of a
// record no process can read or change the record.
func TestRecord(t *testing.T) {
	one, other := of(t, "one"), of(t, "other")
	rapid.Check(t, func(t *rapid.T) {
		var members []elastic.Member
		for i := range rapid.IntRange(0, 2*MaxMembers).Draw(t, "members") {
			members = append(members, member(fmt.Sprint("id", i), rapid.IntRange(1, 2*MaxAddrs).Draw(t, "addrs")))
		}
		number := rapid.Uint64().Draw(t, "number")
		record, err := one.seal(number, members)
		if err != nil || len(record) != recordSize {
			t.Fatalf("%d bytes, %v", len(record), err)
		}
		got, err := one.open(record)
		if err != nil || numberOf(record) != number || len(got) > len(members) || len(members) > 0 && len(got) == 0 {
			t.Fatalf("%d of %d members, %v", len(got), len(members), err)
		}
		for i, m := range got {
			if m.ID != members[i].ID || !slices.Equal(m.Addrs, members[i].Addrs[:min(len(members[i].Addrs), MaxAddrs)]) {
				t.Fatalf("%v for %v", m, members[i])
			}
		}
		if _, err := other.open(record); !errors.Is(err, errRecord) {
			t.Fatalf("another key: %v", err)
		}
		if bytes.Contains(record, []byte("192.0.2")) {
			t.Fatal("the addresses can be read")
		}
		at := rapid.IntRange(0, recordSize-1).Draw(t, "at")
		record[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if err := checkRecord(one.name(), record); !errors.Is(err, errRecord) {
			t.Fatalf("changed at %d: %v", at, err)
		}
	})
}

// A forger with another key cannot sign a record of the job. The forger cannot move the encrypted box of one record into another
// either.
func TestForgedRecord(t *testing.T) {
	one, forger := of(t, "one"), of(t, "forger")
	record, err := forger.seal(7, []elastic.Member{member("a", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := (validator{}).Validate(one.name(), record); !errors.Is(err, errRecord) {
		t.Errorf("under another name: %v", err)
	}
	body := slices.Clone(record[:len(record)-ed25519.SignatureSize])
	moved := append(body, ed25519.Sign(one.sign, signedText(one.name(), body))...)
	if _, err := one.open(moved); !errors.Is(err, errRecord) {
		t.Errorf("a box of another key: %v", err)
	}
	for _, name := range []string{"", namespace, namespace + "short", "/pk/" + one.name()[len(namespace):], one.name() + "x"} {
		if err := (validator{}).Validate(name, record); !errors.Is(err, errRecord) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

// All nodes select the same newest record, in whatever order they receive the records.
func TestSelect(t *testing.T) {
	k := of(t, "one")
	var all [][]byte
	for _, number := range []uint64{3, 9, 9, math.MaxUint64 - 1, 5} {
		record, err := k.seal(number, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record)
	}
	forged := slices.Clone(all[0])
	copy(forged[1:headSize], bytes.Repeat([]byte{0xff}, 8))
	all = append(all, forged, nil, []byte("junk"))
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.Permutation(all).Draw(t, "order")[:rapid.IntRange(1, len(all)).Draw(t, "n")]
		best, err := validator{}.Select(k.name(), some)
		for _, r := range some {
			if checkRecord(k.name(), r) == nil && (err != nil || numberOf(r) > numberOf(some[best])) {
				t.Fatalf("chose %d, %v", best, err)
			}
		}
		if err == nil && checkRecord(k.name(), some[best]) != nil {
			t.Fatal("chose a forged one")
		}
	})
}

// While a record with the same content is fresh, no new record is made. The next record has a higher number.
func TestNext(t *testing.T) {
	k, now := of(t, "one"), time.UnixMilli(1e12)
	a, b := []elastic.Member{member("a", 1)}, []elastic.Member{member("b", 1)}
	made := func(number uint64) []byte {
		record, err := k.seal(number, a)
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	fresh := uint64(freshAge.Milliseconds())
	for _, c := range []struct {
		before  []byte
		members []elastic.Member
		want    uint64
		err     error
	}{
		{nil, a, 1e12, nil},
		{made(1e12 - 1), a, 0, nil},
		{made(1e12), a, 0, nil},
		{made(1e12 - 1), b, 1e12, nil},
		{made(1e12 - fresh), a, 1e12, nil},
		{made(1e12 + 7), a, 1e12 + 8, nil}, // made by a host whose clock is ahead
		{made(math.MaxUint64 - 1), a, math.MaxUint64, nil},
		{made(math.MaxUint64), a, 0, ErrHeld},
	} {
		got, err := k.next(c.before, c.members, now)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("number %d, %v; want %d, %v", got, err, c.want, c.err)
		}
	}
}

// A holder of the key may put anything into a box. The number of decoded members is still bounded.
func TestHostileBox(t *testing.T) {
	for _, text := range []string{"", "{}", "[", strings.Repeat("[", boxText), `[{"i":1}]`, strings.Repeat(" ", boxText+1)} {
		if got, err := decodeMembers([]byte(text)); err == nil && len(got) > 0 {
			t.Errorf("%.20q: %v", text, got)
		}
	}
	many := "[" + strings.TrimSuffix(strings.Repeat(`{"i":"x","a":["y"]},`, 2*MaxMembers), ",") + "]"
	got, err := decodeMembers([]byte(many))
	if err != nil || len(got) != MaxMembers {
		t.Errorf("%d members, %v", len(got), err)
	}
	got, err = decodeMembers([]byte(`[{"i":"","a":["y"]},{"i":"x","a":[]},{"i":"x","a":[""]},{"i":"x","a":["1","2","3","4","5","6","7","8","9"]}]`))
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzRecord(f *testing.F) {
	k := of(f, "one")
	record, err := k.seal(7, []elastic.Member{member("a", 1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record, "")
	f.Add([]byte{}, `[{"i":"x","a":["y"]}]`)
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		if members, err := k.open(b); err == nil && numberOf(b) != 7 { // this number was not signed
			t.Errorf("forged: %v", members)
		}
		// With the key, records can be made from any text.
		members, _ := decodeMembers([]byte(text))
		if len(members) > MaxMembers {
			t.Fatalf("%d members", len(members))
		}
		again, err := k.seal(1, members)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.open(again); err != nil || len(got) > len(members) {
			t.Fatalf("%v, %v of %v", got, err, members)
		}
	})
}
