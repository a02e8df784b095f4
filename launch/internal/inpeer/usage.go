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

// usageTerm is the time for which a peer that is asked once emits what it uses.
const usageTerm = 3 * usagePeriod

// usageMeter emits what the process of a peer uses, until Close: all the time if somebody logs it, and else for a
// while after each request.
type usageMeter struct {
	asked chan struct{} // capacity 1
	life  context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// start starts a new meter, which calls emit.
func (u *usageMeter) start(always bool, emit func()) *usageMeter {
	u.asked = make(chan struct{}, 1)
	u.life, u.stop = context.WithCancel(context.Background())
	u.work.Go(func() { u.run(always, emit) })
	return u
}

// run does the work of a meter until Close.
func (u *usageMeter) run(always bool, emit func()) {
	var until time.Time      // when nobody wants the figures any more
	var due <-chan time.Time // nil while nobody wants them
	if always {
		due = time.After(0)
	}
	for {
		select {
		case <-u.asked:
			until = time.Now().Add(usageTerm)
			if due == nil {
				due = time.After(0)
			}
		case <-due:
			emit()
			due = nil
			if always || time.Now().Before(until) {
				due = time.After(usagePeriod)
			}
		case <-u.life.Done():
			if due != nil {
				emit() // the totals
			}
			return
		}
	}
}

// ask asks for what the process uses, for usageTerm. It does not block.
func (u *usageMeter) ask() {
	select {
	case u.asked <- struct{}{}:
	default: // it was asked already
	}
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
