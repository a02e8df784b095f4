package mem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/transporttest"
	"github.com/elrun/elrun/transport/mem"
)

var (
	_ elastic.Network     = (*mem.Member)(nil)
	_ transport.Transport = (*mem.Transport)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func transports(_ *testing.T, n int) []transport.Transport {
	out := make([]transport.Transport, n)
	for i, t := range mem.New(n) {
		out[i] = t
	}
	return out
}

func kill(t transport.Transport) { t.(*mem.Transport).Kill() }

func TestConformance(t *testing.T) {
	transporttest.Run(t, transports, transporttest.Options{Kill: kill})
}

func TestConformanceInBubble(t *testing.T) {
	transporttest.Run(t, transports, transporttest.Options{Kill: kill, Bubble: true})
}

func TestBadArguments(t *testing.T) {
	ts := mem.New(2)
	for _, to := range []int{-1, 2} {
		if err := ts[0].Send(t.Context(), to, transport.Envelope{}, nil); !errors.Is(err, collective.ErrArgument) {
			t.Errorf("send to %d: %v", to, err)
		}
		ts[0].Signal(to, nil)
	}
	ts[0].Signal(1, make([]byte, transport.MaxSignal+1))
	if len(ts[1].Signals()) != 0 {
		t.Error("a signal above the limit was delivered")
	}
	ts[0].Revoke(nil)
	if err := ts[1].Recv(t.Context(), 0, transport.Envelope{}, nil); !errors.Is(err, transport.ErrRevoked) {
		t.Errorf("revoked without a cause: %v", err)
	}
}

// After its death a killed rank cannot send anything.
func TestKilledRankIsSilent(t *testing.T) {
	ts := mem.New(2)
	ts[0].Kill()
	ts[0].Kill()
	ts[0].Revoke(errors.New("from beyond"))
	var lost *transport.PeerError
	if err := ts[1].Recv(t.Context(), 0, transport.Envelope{}, nil); !errors.As(err, &lost) || lost.Cause != "killed" {
		t.Errorf("got %v", err)
	}
	if err := ts[0].Recv(t.Context(), 1, transport.Envelope{}, nil); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("its own call: %v", err)
	}
	if err := errors.Join(ts[0].Close(), ts[1].Close()); err != nil {
		t.Error(err)
	}
}

func ExampleNew() {
	ts := mem.New(2)
	ctx := context.Background()
	e := transport.Envelope{Seq: 1}
	go ts[0].Send(ctx, 1, e, []byte("hello"))
	buf := make([]byte, 5)
	err := ts[1].Recv(ctx, 0, e, buf)
	fmt.Println(string(buf), err)
	// Output: hello <nil>
}

func BenchmarkTransport(b *testing.B) {
	transporttest.Benchmark(b, func(*testing.B) []transport.Transport { return transports(nil, 2) })
}
