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
	// Attempts is the number of snapshots whose copy was begun: 1, and one more for each snapshot
	// that all donors lost.
	Attempts int
	Elapsed  time.Duration // time of Fetch

	chunks [][]byte // the bytes of the state, in order
}

// Reader returns a reader of the bytes of the state. The reader does not copy the bytes. Each
// Reader begins at the start.
func (s *Snapshot) Reader() *Reader { return &Reader{pieces: s.chunks} }

// Fetch copies a snapshot of the state from several donors at once. It tries other snapshots until
// it has a complete snapshot or ctx ends; its error wraps the cause of ctx. Donors with
// Config.Replays keep the updates after the snapshot for the time of a lease; see Keep and Follow.
func Fetch(ctx context.Context, src Source, o Options) (*Snapshot, error) {
	start := time.Now()
	ch := &chooser{client: client{src, o.withDefaults()}, odd: map[string]bool{}, forged: map[string]bool{}, distance: 2}
	attempts := 0
	for wait := firstPause; ; wait = min(2*wait, longPause) {
		p, err := ch.choose(ctx)
		if err == nil {
			attempts++
			c := &copying{chooser: ch, promise: p}
			if err = c.run(ctx); err == nil {
				s := c.snapshot()
				s.Attempts, s.Elapsed = attempts, time.Since(start)
				c.thank(ctx)
				return s, nil
			}
		}
		// All other errors come from the end of ctx.
		if !errors.Is(err, errLost) || pause.For(ctx, wait) != nil {
			return nil, fmt.Errorf("transfer: fetch: %w", context.Cause(ctx))
		}
	}
}

// snapshot returns the complete copy.
func (c *copying) snapshot() *Snapshot {
	return &Snapshot{
		Step: c.promise.step, Bytes: c.elected.bytes, Replays: c.promise.replays,
		Odd: slices.Sorted(maps.Keys(c.odd)), Forged: slices.Sorted(maps.Keys(c.forged)), chunks: c.chunks,
	}
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
	c.gather(ctx, c.promise.donors, r)
}
