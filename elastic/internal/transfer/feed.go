package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

// feed prefetches updates for the goroutine that applies them, so that each update takes the longer
// of the times to receive and to apply it, not their sum. At most three updates are in memory.
type feed struct {
	client
	items   chan item   // for the goroutine of Follow
	free    chan []byte // buffers of applied updates, for new updates
	running sync.WaitGroup

	received atomic.Int64 // step of the last received update
	tired    atomic.Bool  // set by Follow: the present donor is too slow
	// turn is the number of donors at the head of the list of the donors in use that are asked last.
	turn int
	// silent is the number of donors at the head of Options.Donors that have not answered. They are
	// asked last.
	silent atomic.Int64
}

// item is one of three things: the beginning of a batch of updates, one update, or the report that
// no donor has the next update.
type item struct {
	at   int64   // committed step of the donor; set at the beginning of a batch, and with gone
	step int64   // step of data
	data *[]byte // the update; nil at the beginning of a batch
	last bool    // set in the last item of a batch
	gone bool    // no donor has the needed updates
}

var (
	errGone  = errors.New("the updates are gone")
	errOther = errors.New("try another donor")
)

// newFeed returns a feed of the updates after a step.
func newFeed(c client, after int64) *feed {
	f := &feed{client: c, items: make(chan item), free: make(chan []byte, 3)}
	f.received.Store(after)
	f.o.Donors = func() []string { // for read and for renew
		all := c.o.Donors()
		n := int(f.silent.Load()) % max(1, len(all))
		return slices.Concat(all[n:], all[:n])
	}
	return f
}

// start begins to read updates and to renew leases. Both goroutines end with ctx; the caller waits
// for running.
func (f *feed) start(ctx context.Context) {
	f.running.Go(func() { f.read(ctx) })
	// The leases need not cover received updates, whether applied or not.
	f.running.Go(func() { f.renew(ctx, f.received.Load) })
}

// renew renews the leases of a newcomer at all donors in use until ctx ends. So another donor can
// take over when the donor that sends the updates dies.
func (c client) renew(ctx context.Context, after func() int64) {
	for {
		c.gather(ctx, c.o.names(), request{Do: opKeep, Step: after()})
		if pause.For(ctx, c.o.Patience/2) != nil {
			return
		}
	}
}

// Keep runs f in the caller's goroutine, and renews the leases until f returns, so that the donors
// keep the updates after a step. It is for long work between Fetch and Follow, such as loading the
// snapshot. It returns the error of f.
func Keep(ctx context.Context, src Source, o Options, after int64, f func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	c := client{src, o.withDefaults()}
	var running sync.WaitGroup
	running.Go(func() { c.renew(ctx, func() int64 { return after }) })
	defer running.Wait()
	defer cancel()
	return f()
}

// read reads updates from one donor after another, until ctx ends or no donor has the next update.
func (f *feed) read(ctx context.Context) {
	wait := firstPause
	for goneRounds := 0; ctx.Err() == nil; {
		before := f.received.Load()
		gone, at := f.round(ctx)
		if f.received.Load() > before {
			goneRounds, wait = 0, firstPause
			continue
		}
		// Only rounds in which a donor lacks the updates count; unreachable donors may become
		// reachable again.
		if goneRounds++; !gone {
			goneRounds = 0
			f.silent.Add(int64(f.o.MaxDonors))
		}
		if goneRounds >= maxFails {
			f.send(ctx, item{gone: true, at: at})
			return
		}
		if pause.For(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, longPause)
	}
}

// round reads from each donor in turn, and from each of them until it fails. The result gone
// reports that at least one donor lacks the next update, and the result at is the highest committed
// step of such donors.
func (f *feed) round(ctx context.Context) (gone bool, at int64) {
	names := f.o.names()
	for i := range names {
		donor := names[(i+f.turn)%len(names)]
		h, err := f.batch(ctx, donor)
		for err == nil {
			gone = false
			h, err = f.batch(ctx, donor)
		}
		if errors.Is(err, errGone) {
			gone, at = true, max(at, h.At)
		}
		if errors.Is(err, errOther) {
			// The next round begins with the donor after the slow one.
			f.turn += i + 1
			return gone, at
		}
	}
	return gone, at
}

// batch sends a request for updates to a donor, and passes the updates of the answer to the
// goroutine of Follow.
func (f *feed) batch(ctx context.Context, donor string) (header, error) {
	after := f.received.Load()
	wait := int(f.o.wait() / time.Millisecond)
	a, err := f.ask(ctx, donor, request{Do: opUpdates, Step: after, WaitMS: wait})
	if err != nil {
		return header{}, err
	}
	defer a.stop()
	switch a.Code {
	case codeOK:
	case codeGone:
		return a.header, errGone
	default:
		return a.header, fmt.Errorf("%w: unexpected code %s in an answer", errWire, a.Code)
	}
	if err := f.send(ctx, item{at: a.At, last: a.Count == 0}); err != nil {
		return a.header, err
	}
	for i := range a.Count {
		// Follow asks for another donor when this one is too slow.
		if f.tired.Swap(false) {
			return a.header, errOther
		}
		if err := f.update(ctx, a, after+1+int64(i), i == a.Count-1); err != nil {
			return a.header, err
		}
	}
	return a.header, nil
}

// update receives one update and passes it to the goroutine of Follow. The buffer comes from free,
// or is new. From send on the buffer belongs to the goroutine of Follow, until that goroutine calls
// recycle. After an error the remaining answer is unusable.
func (f *feed) update(ctx context.Context, a *answer, step int64, last bool) error {
	var buf []byte
	select {
	case buf = <-f.free:
	default:
	}
	fr, data, err := readFrame(a.Reader, buf, f.o.MaxBytes)
	if err != nil {
		return err
	}
	// A gap would be applied unnoticed.
	if fr.Step != step {
		return errWire
	}
	if err := f.send(ctx, item{step: step, data: &data, last: last}); err != nil {
		return err
	}
	// The step is stored only now, when Follow has the update: the next request asks for the update
	// after it.
	f.received.Store(step)
	return nil
}

// send passes an item to the goroutine of Follow, unless ctx ends.
func (f *feed) send(ctx context.Context, it item) error {
	select {
	case f.items <- it:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recycle returns the buffer of an applied update. It never blocks: if free is full the buffer is
// left to the garbage collector.
func (f *feed) recycle(data []byte) {
	select {
	case f.free <- data:
	default:
	}
}
