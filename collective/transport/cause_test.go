package transport

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawCause draws one of the errors that ranks pass on, with texts of up to limit bytes.
func drawCause(t *rapid.T, limit int) error {
	text := func(label string) string { return rapid.StringN(0, -1, limit).Draw(t, label) }
	rank := func(label string) int { return int(rapid.Int32().Draw(t, label)) }
	switch rapid.IntRange(0, 2).Draw(t, "type") {
	case 0:
		return &MismatchError{RankA: rank("a"), RankB: rank("b"), A: drawCall(t), B: drawCall(t), Detail: text("detail")}
	case 1:
		return &PeerError{Rank: rank("rank"), Peer: text("peer"), Cause: text("cause")}
	}
	return &AbortError{Rank: rank("rank"), Cause: text("cause"), Mistake: rapid.Bool().Draw(t, "mistake")}
}

func TestCauseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawCause(t, maxText)
		wrapped := fmt.Errorf("allreduce: %w", want)
		b := EncodeCause(3, wrapped)
		if got := DecodeCause(1, b); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
		cut := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		checkUnreadable(t, cut)
		checkUnreadable(t, append(b[:len(b):len(b)], 0))
	})
}

func checkUnreadable(t *rapid.T, b []byte) {
	var a *AbortError
	if err := DecodeCause(5, b); !errors.As(err, &a) || a.Rank != 5 {
		t.Fatalf("%x: %v", b, err)
	}
}

// However long its texts, an encoded cause fits into a signal and can be decoded.
func TestCauseFits(t *testing.T) {
	for _, length := range []int{0, 1, maxText - 1, maxText, maxText + 1, 255, 256, 257, 1000} {
		text := strings.Repeat("x", length)
		cut := text[:min(length, maxText)]
		for _, test := range []struct{ cause, want error }{
			{&MismatchError{Detail: text}, &MismatchError{Detail: cut}},
			{&PeerError{Peer: text, Cause: text, Ended: true}, &PeerError{Peer: cut, Cause: cut}},
			{&AbortError{Cause: text}, &AbortError{Cause: cut}},
			{errors.New(text), &AbortError{Rank: 6, Cause: cut}},
		} {
			b := EncodeCause(6, test.cause)
			if got := DecodeCause(0, b); len(b) > MaxSignal || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%T of %d: %d bytes that say %v", test.cause, length, len(b), got)
			}
		}
	}
}

// The truncation of a long text may fall into the middle of a character; the result is
// valid UTF-8.
func TestCauseCutsAtCharacters(t *testing.T) {
	got := DecodeCause(0, EncodeCause(0, &AbortError{Cause: "x" + strings.Repeat("ä", 200)}))
	if want := "x" + strings.Repeat("ä", 99); got.(*AbortError).Cause != want {
		t.Errorf("got %q", got)
	}
}

// An error of any other type, and a nil error, become an AbortError of the caller.
func TestCauseOfOtherErrors(t *testing.T) {
	got := DecodeCause(1, EncodeCause(4, errors.New("disk full")))
	if want := (&AbortError{Rank: 4, Cause: "disk full"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
	if got, ok := DecodeCause(1, EncodeCause(4, nil)).(*AbortError); !ok || got.Rank != 4 {
		t.Errorf("got %#v", got)
	}
}

func FuzzDecodeCause(f *testing.F) {
	f.Add(0, []byte{})
	for _, cause := range []error{&MismatchError{RankA: 1, Detail: "x"}, &PeerError{Peer: "p", Cause: "c"}, &AbortError{Cause: "ä"}} {
		f.Add(1, EncodeCause(0, cause))
	}
	f.Fuzz(func(t *testing.T, from int, b []byte) {
		got := DecodeCause(from, b)
		if !errors.Is(got, ErrRevoked) {
			t.Fatalf("%x became %v", b, got)
		}
		again := EncodeCause(from, got)
		if len(again) > MaxSignal {
			t.Fatalf("%d bytes", len(again))
		}
		// Texts longer than maxText are truncated once, and then stay the same.
		once := DecodeCause(from, again)
		if twice := DecodeCause(from, EncodeCause(from, once)); !reflect.DeepEqual(once, twice) {
			t.Fatalf("%#v became %#v", once, twice)
		}
	})
}
