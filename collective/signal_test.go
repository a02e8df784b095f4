package collective

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
)

func drawSignal(t *rapid.T) signal {
	return signal{
		kind:     rapid.SampledFrom([]byte{signalAsk, signalTell}).Draw(t, "kind"),
		env:      transport.Envelope{Comm: rapid.Uint64().Draw(t, "comm"), Seq: rapid.Uint32().Draw(t, "seq"), Call: drawCall(t)},
		blocking: rapid.Bool().Draw(t, "blocking"),
		state:    rapid.SampledFrom([]state{unknown, present, absent, past}).Draw(t, "state"),
		at:       time.Duration(rapid.Int64().Draw(t, "at")),
		plight: plight{
			inside: rapid.Bool().Draw(t, "inside"), waits: rapid.Int32().Draw(t, "waits"),
			slow: rapid.Int32().Draw(t, "slow"), took: time.Duration(rapid.Int64().Draw(t, "took")),
		},
	}
}

func TestSignalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawSignal(t)
		b := want.append(nil)
		if len(b) > transport.MaxSignal {
			t.Fatalf("%d bytes, at most %d", len(b), transport.MaxSignal)
		}
		got, err := decodeSignal(b)
		if err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestSignalRefused(t *testing.T) {
	good := signal{kind: signalAsk}.append(nil)
	unknownKind := bytes.Clone(good)
	unknownKind[0] = signalTell + 1
	for name, b := range map[string][]byte{
		"empty": nil, "short": good[:len(good)-1], "long": append(good[:len(good):len(good)], 0),
		"kind": unknownKind, "zeros": make([]byte, signalSize),
	} {
		if s, err := decodeSignal(b); err == nil {
			t.Errorf("%s: got %+v", name, s)
		}
	}
}

func FuzzDecodeSignal(f *testing.F) {
	f.Add([]byte{})
	f.Add(signal{kind: signalAsk, blocking: true}.append(nil))
	f.Add(signal{kind: signalTell, state: past, at: time.Second}.append(nil))
	f.Add(signal{kind: signalTell, plight: plight{inside: true, waits: 3, slow: -1, took: time.Second}}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSignal(b)
		if err != nil {
			return
		}
		again := s.append(nil)
		again[13+3] = b[13+3] // reserved in the call
		if !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

// isPast counts modulo 1<<31: it holds across the wrap of the sequence.
func TestIsPast(t *testing.T) {
	w := &world{seqs: make(map[uint64]*sequence)}
	s := w.sequence(7, nil)
	tests := []struct {
		begun, asked uint32
		want         bool
	}{
		{0, 1, false}, {1, 1, true}, {5, 6, false}, {5, 1, true},
		{1<<31 + 2, 1<<31 - 5, true}, {1<<31 - 2, 3, false}, {1 << 31, 0, true}, {1<<32 - 1, 0, false},
	}
	for _, test := range tests {
		s.begun = test.begun
		if got := w.isPast(transport.Envelope{Comm: 7, Seq: test.asked &^ pointBit}); got != test.want {
			t.Errorf("call %d after %d: past is %v", test.asked, test.begun, got)
		}
	}
	if w.isPast(transport.Envelope{Comm: 8}) {
		t.Error("past on a communicator that is not known")
	}
}
