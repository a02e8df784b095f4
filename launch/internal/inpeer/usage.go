package inpeer

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/proc"
)

// usagePeriod is the time between two events of what a process uses.
const usagePeriod = 5 * time.Second

// usageMeter emits what the process of a peer uses, until Close. A job whose events nobody reads has none.
type usageMeter struct {
	stop context.CancelFunc
	work sync.WaitGroup
}

// meter starts the meter of a peer.
func (p *peer) meter() *usageMeter {
	ctx, stop := context.WithCancel(context.Background())
	u := &usageMeter{stop: stop}
	u.work.Go(func() {
		tick := time.NewTicker(usagePeriod)
		defer tick.Stop()
		for {
			p.emitUsage()
			select {
			case <-tick.C:
			case <-ctx.Done():
				p.emitUsage() // the totals
				return
			}
		}
	})
	return u
}

// Close ends the meter.
func (u *usageMeter) Close() error {
	u.stop()
	u.work.Wait()
	return nil
}

// emitUsage emits the usage of this process, and of the program if this process is its sidecar.
func (p *peer) emitUsage() {
	own := proc.OwnEffort()
	if p.a.program != nil {
		theirs := p.a.program.Effort()
		own.CPU, own.RSS = own.CPU+theirs.CPU, own.RSS+theirs.RSS
	}
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	e := event.Usage{CPUS: own.CPU.Seconds(), RSS: own.RSS, GCMS: gc.PauseTotal.Seconds() * 1000, Goroutines: runtime.NumGoroutine(),
		Sent: make(map[string]int64), Received: make(map[string]int64)}
	p.mu.Lock()
	host, id := p.p2pHost, p.id.ep.Self.ID.Short()
	p.mu.Unlock()
	for kind, n := range host.Traffic() {
		e.Sent[kind], e.Received[kind] = n.Sent, n.Received
	}
	p.a.Emit(event.Event{Time: time.Now(), Peer: id, Index: p.env.Index, Body: e})
}
