package mailbox_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mailbox"
)

// trickle is a stream in which each piece takes a given time.
type trickle struct {
	piece int
	pause time.Duration
	fail  bool // fails at the end
	left  int
}

func (t *trickle) Read(p []byte) (int, error) {
	n := min(len(p), t.piece, t.left)
	if n == 0 {
		if t.fail {
			return 0, errors.New("broken")
		}
		return 0, io.EOF
	}
	<-time.After(t.pause)
	for i := range p[:n] {
		p[i] = byte(t.left - i)
	}
	t.left -= n
	return n, nil
}

// The rate of a long payload is measured without its beginning. A payload of medium length is
// measured as a whole, and a short payload is not measured. It does not matter whether the payload
// is used or discarded.
func TestGauge(t *testing.T) {
	const piece, pause = 4 << 10, time.Millisecond
	tests := map[string]struct {
		size int
		want transport.Arrival
	}{
		"long":   {256 << 10, transport.Arrival{Bytes: 196 << 10, Time: 49 * pause}},
		"medium": {64 << 10, transport.Arrival{Bytes: 64 << 10, Time: 16 * pause}},
		"least":  {32 << 10, transport.Arrival{Bytes: 32 << 10, Time: 8 * pause}},
		"short":  {28 << 10, transport.Arrival{}},
		"empty":  {0, transport.Arrival{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g mailbox.Gauge
				buf := make([]byte, test.size)
				if err := g.Fill(&trickle{piece: piece, pause: pause, left: test.size}, buf); err != nil {
					t.Fatal(err)
				}
				if got := g.Reset(); got != test.want {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
				for i, b := range buf {
					if b != byte(test.size-i) {
						t.Fatalf("byte %d is %d", i, b)
					}
				}
				if err := g.Skip(&trickle{piece: piece, pause: pause, left: test.size}, test.size); err != nil {
					t.Fatal(err)
				}
				if got := g.Reset(); got.Bytes != test.want.Bytes || got.Time > test.want.Time {
					t.Errorf("thrown away: got %+v, want %+v", got, test.want)
				}
				if again := g.Reset(); again != (transport.Arrival{}) {
					t.Errorf("taken again: %+v", again)
				}
			})
		})
	}
}

// The measurements of several payloads are added up. An incomplete payload does not count.
func TestGaugeAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g mailbox.Gauge
		for _, size := range []int{40 << 10, 50 << 10} {
			if err := g.Fill(&trickle{piece: 10 << 10, pause: time.Second, left: size}, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		for _, left := range []int{0, 50 << 10, 150 << 10} {
			if err := g.Fill(&trickle{piece: 10 << 10, left: left, fail: true}, make([]byte, 200<<10)); err == nil {
				t.Error("no error from a broken stream")
			}
			if err := g.Skip(bytes.NewReader(make([]byte, left)), 200<<10); err == nil {
				t.Error("no error from a short stream")
			}
		}
		if got, want := g.Reset(), (transport.Arrival{Bytes: 90 << 10, Time: 9 * time.Second}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
