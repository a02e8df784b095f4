package p2p_test

import (
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// The receiver measures probes and long messages, but not short messages. Probes delay no other
// messages.
func TestMeter(t *testing.T) {
	for name, cfg := range paths() {
		t.Run(name, func(t *testing.T) {
			hs, v := hosts(t, 3, cfg)
			ts := connect(t, hs, v)
			for _, tr := range ts {
				defer tr.Close()
			}
			env := func(seq uint32) transport.Envelope { return transport.Envelope{Seq: seq} }
			// pass sends n bytes from rank 0 to rank 1.
			pass := func(seq uint32, n int) {
				t.Helper()
				sent := make(chan error, 1)
				go func() { sent <- ts[0].Send(t.Context(), 1, env(seq), make([]byte, n)) }()
				if err := ts[1].Recv(t.Context(), 0, env(seq), make([]byte, n)); err != nil {
					t.Fatal(err)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
			}
			meter := ts[1].(transport.Meter)
			pass(1, 1000)
			if got := meter.Arrived(); len(got) != 3 || got[0].Bytes != 0 {
				t.Errorf("after a short message: %+v", got)
			}
			pass(2, 100<<10)
			if got := meter.Arrived(); got[0].Bytes != 100<<10 || got[0].Time <= 0 || got[2].Bytes != 0 {
				t.Errorf("after a long message: %+v", got)
			}
			prober := ts[0].(transport.Meter)
			prober.Probe(1, 256<<10)
			prober.Probe(0, 1000)                       // itself
			prober.Probe(7, 1000)                       // nobody
			prober.Probe(1, transport.MaxProbe+1)       // too long
			ts[0].Signal(1, []byte("behind the probe")) // or before it: then the probe is awaited below
			if got := string((<-ts[1].Signals()).Data); got != "behind the probe" {
				t.Errorf("signal %q", got)
			}
			var bytes int64
			for seq, deadline := uint32(3), time.Now().Add(long); bytes == 0 && time.Now().Before(deadline); seq++ {
				pass(seq, 1)
				bytes = meter.Arrived()[0].Bytes
			}
			if bytes != 196<<10 {
				t.Errorf("%d bytes of a probe were measured", bytes)
			}
		})
	}
}
