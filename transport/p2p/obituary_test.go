package p2p

import (
	"bytes"
	"errors"
	"testing"

	"github.com/elrun/elrun/elastic"
)

// obituaryOf returns an obituary with some signature.
func obituaryOf(id string) Obituary {
	o := Obituary{ID: elastic.ID(id)}
	o.Signature[0] = byte(len(id))
	return o
}

// A member gets the obituaries that a process outside of the job brings, and its answer tells whether it
// has passed them on.
func TestTell(t *testing.T) {
	all := []Obituary{obituaryOf("a"), obituaryOf("bc")}
	for name, c := range map[string]struct {
		on   func([]Obituary) bool
		told bool
	}{
		"a member":          {func(got []Obituary) bool { return len(got) == 2 && got[0] == all[0] && got[1] == all[1] }, true},
		"a wrong signature": {func([]Obituary) bool { return false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := Listen(t.Context(), Config{Job: "j", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}, Admission: policyOf(signer(1)), OnObituaries: c.on})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			m := elastic.Member{ID: h.ID(), Addrs: h.Addrs()}
			if err := Tell(t.Context(), m, all); errors.Is(err, ErrNoMember) || (err == nil) != c.told {
				t.Errorf("got %v, want nil: %v", err, c.told)
			}
			m.ID = elastic.ID("12D3KooWGRUVh7YSWR2jUuFoEBFL8ZFvSpb5D6HvCFYHgTpQx9dX")
			if err := Tell(t.Context(), m, all); err == nil || errors.Is(err, ErrNoMember) {
				t.Errorf("another peer answers at the address: %v", err)
			}
		})
	}
}

// A process that has ended is no member; one that takes no obituaries may be one.
func TestTellNobody(t *testing.T) {
	h, addr := greeted(t, policyOf(signer(1)))
	m := elastic.Member{ID: h.ID(), Addrs: []string{addr}}
	if err := Tell(t.Context(), m, []Obituary{obituaryOf("a")}); err == nil || errors.Is(err, ErrNoMember) {
		t.Errorf("a host that takes none: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for name, addrs := range map[string][]string{"ended": {addr}, "without an address": nil} {
		m.Addrs = addrs
		if err := Tell(t.Context(), m, []Obituary{obituaryOf("a")}); !errors.Is(err, ErrNoMember) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Bytes of a stranger give obituaries that encode to the same bytes, or an error.
func FuzzObituaries(f *testing.F) {
	f.Add(encodeObituaries([]Obituary{obituaryOf("a"), obituaryOf("bc")}))
	f.Add([]byte{0})
	f.Add([]byte{255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		all, err := readObituaries(r)
		if read := b[:len(b)-r.Len()]; err == nil && !bytes.Equal(encodeObituaries(all), read) {
			t.Errorf("%x is read as %v", read, all)
		}
	})
}
