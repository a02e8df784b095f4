package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// feed reads the updates ahead of the goroutine that applies them, so that the time of
// a step is the longer one of the two, and not their sum. At most three updates are in
// memory.
type feed struct {
	client
	items   chan item
	free    chan []byte // memory of updates that were applied
	running sync.WaitGroup

	received atomic.Int64 // step of the last update read
	tired    atomic.Bool  // another donor may be faster
	turn     int          // how often that was so
}

// item is the beginning of a batch of updates, or one of them, or the news that there
// are none any more.
type item struct {
	at   int64   // committed step of the donor; of the beginning, and of gone
	step int64   // of data
	data *[]byte // nil at the beginning of a batch
	last bool    // of the batch
	gone bool
}

var (
	errGone  = errors.New("the updates are gone")
	errOther = errors.New("try another donor")
)

func newFeed(c client, after int64) *feed {
	f := &feed{client: c, items: make(chan item), free: make(chan []byte, 3)}
	f.received.Store(after)
	return f
}

// start begins to read, and to renew the leases. Both end with ctx; the caller waits for
// running.
func (f *feed) start(ctx context.Context) {
	f.running.Go(func() { f.read(ctx) })
	f.running.Go(func() { f.renew(ctx, f.received.Load) })
}

// renew keeps the leases of a joiner at its donors, until ctx ends: those that do not
// serve it at present are those to which it changes when the other dies.
func (c client) renew(ctx context.Context, after func() int64) {
	for {
		c.gather(ctx, c.o.names(), request{Do: opKeep, Step: after()})
		if pause(ctx, c.o.Patience/2) != nil {
			return
		}
	}
}

// Keep runs f in the caller's goroutine, and lets the donors keep the updates after a
// step meanwhile: for what takes long between Fetch and Follow, as loading the snapshot.
// It returns the error of f.
func Keep(ctx context.Context, src Source, o Options, after int64, f func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	c := client{src, o.withDefaults()}
	var running sync.WaitGroup
	running.Go(func() { c.renew(ctx, func() int64 { return after }) })
	defer running.Wait()
	defer cancel()
	return f()
}

// read asks one donor after the other for what comes next, until ctx ends or no donor
// has it.
func (f *feed) read(ctx context.Context) {
	wait := firstPause
	for goneRounds := 0; ctx.Err() == nil; {
		before := f.received.Load()
		gone, at := f.round(ctx)
		if f.received.Load() > before {
			goneRounds, wait = 0, firstPause
			continue
		}
		if goneRounds++; !gone {
			goneRounds = 0
		}
		if goneRounds >= maxFails {
			f.send(ctx, item{gone: true, at: at})
			return
		}
		if pause(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, longPause)
	}
}

// round reads from each donor as long as it serves. gone says that at least one answered
// that it lacks what is needed, and that it is at step at.
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
			f.turn += i + 1
			return gone, at
		}
	}
	return gone, at
}

// batch asks a donor once, and passes on what comes.
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
		return a.header, fmt.Errorf("%w: it is %s", errWire, a.Code)
	}
	if err := f.send(ctx, item{at: a.At, last: a.Count == 0}); err != nil {
		return a.header, err
	}
	for i := range a.Count {
		if f.tired.Swap(false) {
			return a.header, errOther
		}
		if err := f.update(ctx, a, after+1+int64(i), i == a.Count-1); err != nil {
			return a.header, err
		}
	}
	return a.header, nil
}

// update reads one update and passes it on.
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
	if fr.Step != step {
		return errWire
	}
	if err := f.send(ctx, item{step: step, data: &data, last: last}); err != nil {
		return err
	}
	f.received.Store(step)
	return nil
}

// send passes an item on, unless ctx ends.
func (f *feed) send(ctx context.Context, it item) error {
	select {
	case f.items <- it:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recycle takes the memory of an update back.
func (f *feed) recycle(data []byte) {
	select {
	case f.free <- data:
	default:
	}
}
