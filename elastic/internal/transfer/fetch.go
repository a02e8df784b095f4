package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

// Snapshot is the state after a step, received from the donors.
type Snapshot struct {
	Step  int64
	Bytes int64
	// Replays is set if the donors keep the updates after Step, so that Follow can continue from
	// Step.
	Replays bool
	// Odd names the donors that were excluded because their manifest differed from the majority's,
	// or because they sent several chunks with a wrong hash.
	Odd []string
	// Forged names donors that sent a chunk whose hash is not in the majority's manifest. Such a
	// chunk was refused, and fetched from another donor.
	Forged []string
	Stats  Stats

	chunks [][]byte // the bytes of the state, in order
}

// Stats are the statistics of a copy.
type Stats struct {
	From map[string]int64 // bytes of the kept chunks, by donor
	// Wasted is the number of bytes of chunks that arrived more than once.
	Wasted int64
	// Attempts is the number of snapshots whose copy was begun: 1, and one more for each snapshot
	// that all donors lost.
	Attempts int
	Elapsed  time.Duration // time of Fetch
}

// Reader returns a reader of the bytes of the state. The reader does not copy the bytes. Each
// Reader begins at the start.
func (s *Snapshot) Reader() *Reader { return &Reader{pieces: s.chunks} }

// Fetch copies a snapshot of the state from several donors at once. It tries other donors and other
// snapshots until it has a complete snapshot or ctx ends; its error wraps the cause of ctx. Donors
// with Config.Replays keep the updates after the snapshot for the time of a lease; see Keep and
// Follow.
func Fetch(ctx context.Context, src Source, o Options) (*Snapshot, error) {
	start := time.Now()
	o = o.withDefaults()
	ch := &chooser{client: client{src, o}, odd: map[string]bool{}, forged: map[string]bool{}, distance: 2}
	stats := Stats{From: map[string]int64{}}
	for wait := firstPause; ; wait = min(2*wait, longPause) {
		p, err := ch.choose(ctx)
		if err == nil {
			stats.Attempts++
			c := newCopying(ch, p)
			err = c.run(ctx)
			c.account(&stats) // includes the traffic of lost snapshots
			if err == nil {
				stats.Elapsed = time.Since(start)
				c.thank(ctx)
				return c.snapshot(stats), nil
			}
		}
		// All other errors come from the end of ctx.
		if !errors.Is(err, errLost) || pause.For(ctx, wait) != nil {
			return nil, fmt.Errorf("transfer: fetch: %w", context.Cause(ctx))
		}
	}
}

// run copies the snapshot with one worker per donor, and adds workers for donors that become known
// later. errLost means that no donor is left.
func (c *copying) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.workers.Wait()
	defer cancel()
	c.hire(ctx, c.promise.donors)
	// No event reports a change of the list of donors, so the list is polled.
	tick := time.NewTicker(c.o.Patience / 8)
	defer tick.Stop()
	for {
		done, working, changes := c.state()
		if done {
			return nil
		}
		// All donors have failed: only a new donor can help.
		if working == 0 && !c.hire(ctx, c.o.Donors()) {
			return errLost
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes:
		case <-tick.C:
			c.hire(ctx, c.o.Donors())
		}
	}
}

// hire starts workers for donors that have no worker, and reports whether there were such donors.
func (c *copying) hire(ctx context.Context, donors []string) bool {
	var fresh []string
	c.mu.Lock()
	for _, name := range donors {
		// A donor whose worker has ended keeps its entry, so this donor is not tried again for this
		// snapshot.
		if c.hands[name] == nil && !c.odd[name] && c.working < c.o.MaxDonors {
			c.hands[name] = &hand{name: name, rank: len(c.hands)}
			c.working++
			fresh = append(fresh, name)
		}
	}
	c.mu.Unlock()
	for _, name := range fresh {
		c.workers.Go(func() { c.work(ctx, c.hand(name)) })
	}
	return len(fresh) > 0
}

// work sends requests to a donor until the donor is lost, fails too often, or ctx ends.
func (c *copying) work(ctx context.Context, h *hand) {
	defer c.leave(h)
	for ctx.Err() == nil {
		fails := c.note(h, c.turn(ctx, h))
		if fails >= maxFails {
			return
		}
		// fails is below maxFails, so the pause stays short.
		if fails > 0 && pause.For(ctx, firstPause<<fails) != nil {
			return
		}
	}
}

// turn sends the next request to a donor, for its manifest or a range of chunks. If there is
// nothing to request, turn waits for a change of the copy.
func (c *copying) turn(ctx context.Context, h *hand) error {
	first, count, changes := c.next(h)
	switch {
	// The manifest comes first: chunks of a donor are used only if its manifest is the elected one.
	case h.vote == nil:
		return c.fetchManifest(ctx, h)
	case c.differs(h):
		return errOdd
	case count > 0:
		return c.fetchRange(ctx, h, first, count)
	}
	select {
	case <-changes:
	case <-ctx.Done():
	}
	return nil
}

// fetchManifest requests the hashes of the snapshot. The donor answers when the snapshot exists.
func (c *copying) fetchManifest(ctx context.Context, h *hand) error {
	wait := int(c.o.wait() / time.Millisecond)
	a, err := c.ask(ctx, h.name, request{Do: opManifest, Step: c.promise.step, WaitMS: wait})
	if err != nil {
		return err
	}
	defer a.stop()
	switch {
	case a.Code == codePending && (!a.Resting || a.At == c.promise.step):
		return nil
	case a.Code != codeOK: // this includes a donor that rests before the step, as the step may never come
		return errLost
	}
	m, err := readManifest(a.Reader, c.promise.step, a.header)
	if err != nil {
		return err
	}
	c.elect(h, m)
	return nil
}

// fetchRange requests chunks. It stops early when other donors have sent the remaining chunks.
func (c *copying) fetchRange(ctx context.Context, h *hand, first, count int) error {
	// Chunks that this donor does not send may be requested from other donors.
	defer c.giveBack(h, first, count)
	a, err := c.ask(ctx, h.name, request{Do: opChunks, Step: c.promise.step, First: first, Count: count})
	if err != nil {
		return err
	}
	defer a.stop()
	if a.Code != codeOK {
		return errLost
	}
	if a.Count != count {
		return fmt.Errorf("%w: the answer has %d chunks, want %d", errWire, a.Count, count)
	}
	var buf []byte
	// The remaining chunks are not read if other donors have sent them: stop cancels the answer.
	for i := first; i < first+count && c.needs(i, first+count-i); i++ {
		if buf, err = readN(a, buf, int64(h.vote.length(i))); err != nil {
			return fmt.Errorf("chunk %d of %s: %w", i, h.name, err)
		}
		kept, err := c.deliver(h, i, buf)
		if err != nil {
			return err
		}
		if kept {
			// The copy owns the memory of the chunk now.
			buf = nil
		}
	}
	return nil
}

// thank sends the donors the message that the newcomer no longer needs the snapshot, but still
// needs the updates after it. A donor that does not receive this request drops both when the lease
// expires.
func (c *copying) thank(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Patience/8)
	defer cancel()
	r := request{Do: opKeep, Step: c.promise.step}
	if !c.promise.replays {
		r.Do = opEnd
	}
	c.gather(ctx, slices.Collect(maps.Keys(c.hands)), r)
}
