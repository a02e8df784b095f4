package p2p_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/networktest"
	"github.com/elrun/elrun/transport/p2p"
)

func TestViews(t *testing.T) {
	for name, cfg := range paths() {
		o := networktest.Options{Kill: func(e elastic.Endpoint) { _ = e.Network.(*p2p.Host).Close() }, Parallel: true}
		if cfg.Path == "p2p" { // else data has connections of its own
			o.Break = func(a, b elastic.Endpoint) { _ = p2p.Break(a.Network.(*p2p.Host), b.Self.ID) }
		}
		t.Run(name, func(t *testing.T) {
			networktest.Run(t, func(t *testing.T, n int) []elastic.Endpoint {
				hs, v := hosts(t, n, cfg)
				introduce(t, hs, v)
				var ends []elastic.Endpoint
				for i, h := range hs {
					ends = append(ends, elastic.Endpoint{Self: v.Members[i], Network: h, Close: h.Close})
				}
				return ends
			}, o)
		})
	}
}

// BenchmarkEnterView measures entering a later view, for all members together in this one process:
// the time until all have entered it (ns/op), and the processor time (cpu-ns/op).
func BenchmarkEnterView(b *testing.B) {
	for _, name := range []string{"local", "auto", "direct", "tls"} {
		for _, n := range []int{4, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				hs, v := hosts(b, n, paths()[name])
				closeAll(b, connect(b, hs, v)) // the first view is not measured: it opens the streams
				b.ResetTimer()
				var used time.Duration
				for range b.N {
					v.Epoch++
					before := processorTime(b)
					ts := connect(b, hs, v)
					used += processorTime(b) - before
					b.StopTimer()
					closeAll(b, ts)
					b.StartTimer()
				}
				b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime returns the processor time of this process.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
