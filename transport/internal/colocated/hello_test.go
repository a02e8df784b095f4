package colocated

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestHelloSurvivesEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringOfN(rapid.RuneFrom([]rune("abcXYZ019")), 0, MaxID, MaxID)
		h := hello{rapid.Byte().Draw(t, "kind"), id.Draw(t, "from"), id.Draw(t, "to"), rapid.Uint64().Draw(t, "number")}
		key := keyOf("key")
		b := h.encode(&key)
		got, err := decodeHello(&b)
		if err != nil || got != h {
			t.Fatalf("decoded %+v, %v, want %+v", got, err, h)
		}
		if !proven(&key, &b) {
			t.Fatal("the proof does not hold")
		}
		b[rapid.IntRange(0, helloSize-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if proven(&key, &b) {
			t.Fatal("the proof holds for another hello")
		}
	})
}

func TestAnswer(t *testing.T) {
	key, other := keyOf("key"), keyOf("other")
	asked := (&hello{kind: 1, from: "a", to: "b", number: 1}).encode(&key)
	again := (&hello{kind: 1, from: "a", to: "b", number: 2}).encode(&key)
	answer := encodeAnswer(&key, &asked, 0)
	if err := decodeAnswer(&key, &asked, &answer); err != nil {
		t.Error(err)
	}
	if err := decodeAnswer(&key, &again, &answer); !errors.Is(err, ErrKey) {
		t.Errorf("answer to another hello: %v, want %v", err, ErrKey)
	}
	if err := decodeAnswer(&other, &asked, &answer); !errors.Is(err, ErrKey) {
		t.Errorf("answer by another key: %v, want %v", err, ErrKey)
	}
	refusal := encodeAnswer(&key, &asked, 9)
	var refused *RefusedError
	if err := decodeAnswer(&key, &asked, &refusal); !errors.As(err, &refused) || refused.Code != 9 {
		t.Errorf("refusal: %v, want code 9", err)
	}
	refusal[0] = 0
	if err := decodeAnswer(&key, &asked, &refusal); !errors.Is(err, ErrKey) {
		t.Errorf("refusal that was changed: %v, want %v", err, ErrKey)
	}
}

// The window agrees with a simple implementation, the set of all numbers that were seen.
func TestWindowAcceptsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		seen := map[uint64]bool{}
		highest := uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			var n uint64
			if rapid.Bool().Draw(t, "near") {
				n = highest + uint64(rapid.IntRange(0, 3).Draw(t, "ahead"))
				n -= min(n, uint64(rapid.IntRange(0, 5).Draw(t, "behind")))
			} else {
				n = highest + uint64(rapid.IntRange(0, 2*windowSize).Draw(t, "far ahead"))
				n -= min(n, uint64(rapid.IntRange(0, 2*windowSize).Draw(t, "far behind")))
			}
			want := n > 0 && !seen[n] && n+windowSize > highest
			if got := w.accept(n); got != want {
				t.Fatalf("number %d after %d: accepted %v, want %v", n, highest, got, want)
			}
			seen[n] = true
			highest = max(highest, n)
		}
	})
}

func FuzzHello(f *testing.F) {
	key := keyOf("key")
	good := (&hello{kind: 3, from: "12D3KooWA", to: "12D3KooWB", number: 1 << 40}).encode(&key)
	f.Add(good[:])
	f.Add(make([]byte, helloSize))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b [helloSize]byte
		copy(b[:], text)
		h, err := decodeHello(&b)
		if err != nil {
			return
		}
		if len(h.from) > MaxID || len(h.to) > MaxID {
			t.Errorf("IDs of %d and %d bytes", len(h.from), len(h.to))
		}
		if again := h.encode(&key); [helloSigned]byte(again[:]) != [helloSigned]byte(b[:]) {
			t.Errorf("encoded again %x, was %x", again[:helloSigned], b[:helloSigned])
		}
	})
}

func FuzzAnswer(f *testing.F) {
	key := keyOf("key")
	asked := (&hello{kind: 3, from: "a", to: "b", number: 1}).encode(&key)
	good := encodeAnswer(&key, &asked, 0)
	f.Add(good[:])
	f.Fuzz(func(t *testing.T, text []byte) {
		var b [answerSize]byte
		copy(b[:], text)
		if err := decodeAnswer(&key, &asked, &b); err == nil && b != good {
			t.Errorf("accepted %x", b)
		}
	})
}
