package transfer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

const (
	maxFails = 4 // requests of a donor that fail in a row, until it is left alone
	maxWrong = 3 // chunks with a wrong hash, likewise
)

var errOdd = errors.New("differs from the other donors")

// copying is one snapshot on its way. It is shared by a worker per donor; mu is not
// held during requests.
type copying struct {
	*chooser
	promise promise
	workers sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	hands   map[string]*hand
	working int       // workers that have not ended
	elected *manifest // that of most donors; nil until enough have answered
	plan    *plan     // from then on
	chunks  [][]byte
	wasted  int64
}

// hand is a donor at work.
type hand struct {
	name  string
	rank  int       // order in which donors were named, which decides ties
	vote  *manifest // written by its own worker
	fails int       // in a row
	wrong int
	ended bool
	bytes int64 // contributed
}

func newCopying(ch *chooser, p promise) *copying {
	return &copying{chooser: ch, promise: p, changed: make(chan struct{}), hands: map[string]*hand{}}
}

// wakeLocked tells all who wait that something has changed.
func (c *copying) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// state returns how things stand, and a channel that is closed when they change.
func (c *copying) state() (done bool, working int, changes <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elected != nil && c.plan.left == 0, c.working, c.changed
}

// hand returns a donor at work.
func (c *copying) hand(name string) *hand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hands[name]
}

// next returns the range to ask a donor for, or a count of 0 and what to wait for.
func (c *copying) next(h *hand) (first, count int, changes <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.vote != nil && c.elected != nil && h.vote.sum == c.elected.sum {
		first, count = c.plan.next(h.name, c.working)
	}
	return first, count, c.changed
}

// giveBack takes a range back from a donor.
func (c *copying) giveBack(h *hand, first, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan.release(h.name, first, count)
	c.wakeLocked()
}

// needs reports whether any chunk of a range is missing.
func (c *copying) needs(first, count int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan.needs(first, count)
}

// deliver checks and keeps a chunk, unless another donor was faster.
func (c *copying) deliver(h *hand, i int, data []byte) (kept bool, err error) {
	wrong := sumOf(data) != h.vote.hashes[i] // its vote is the elected one
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong {
		h.wrong++
		c.forged[h.name] = true
		return false, fmt.Errorf("%w: chunk %d of %s has a wrong hash", errWire, i, h.name)
	}
	h.fails = 0
	if !c.plan.finish(i) {
		c.wasted += int64(len(data))
		return false, nil
	}
	c.chunks[i] = data
	h.bytes += int64(len(data))
	if c.plan.left == 0 {
		c.wakeLocked()
	}
	return true, nil
}

// note counts what goes wrong with a donor, and returns maxFails if it is to be left
// alone.
func (c *copying) note(h *hand, err error) (fails int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		h.fails = 0
		return 0
	}
	h.fails++
	if errors.Is(err, errOdd) || h.wrong >= maxWrong {
		c.odd[h.name] = true
		return maxFails
	}
	c.electLocked() // without waiting for this one
	if errors.Is(err, errLost) {
		return maxFails
	}
	return h.fails
}

// leave says that the worker of a donor ends.
func (c *copying) leave(h *hand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ended = true
	c.working--
	c.electLocked()
	c.wakeLocked()
}

// elect takes the manifest of a donor.
func (c *copying) elect(h *hand, m *manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.vote = m
	c.electLocked()
	c.wakeLocked()
}

// differs reports whether the manifest of a donor is not the elected one.
func (c *copying) differs(h *hand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elected != nil && h.vote.sum != c.elected.sum
}

// electLocked decides which manifest is right: that of more than half of the donors that
// have one or may still send one; when no more are to come that of the most, and among
// equals that of the donor named first.
func (c *copying) electLocked() {
	if c.elected != nil {
		return
	}
	votes := map[sum]int{}
	voters, waiting := 0, 0
	for _, h := range c.hands {
		switch {
		case h.vote != nil:
			votes[h.vote.sum]++
			voters++
		case !h.ended && h.fails == 0:
			waiting++
		}
	}
	var best *manifest
	for _, h := range slices.SortedFunc(maps.Values(c.hands), func(a, b *hand) int { return a.rank - b.rank }) {
		if h.vote != nil && (best == nil || votes[h.vote.sum] > votes[best.sum]) {
			best = h.vote
		}
	}
	if best == nil || waiting > 0 && 2*votes[best.sum] <= voters+waiting {
		return
	}
	c.elected = best
	c.plan = newPlan(len(best.hashes))
	c.chunks = make([][]byte, len(best.hashes))
	for _, h := range c.hands {
		if h.vote != nil && h.vote.sum != best.sum {
			c.odd[h.name] = true
		}
	}
	c.wakeLocked()
}

// account adds what came of this snapshot to the statistics.
func (c *copying) account(s *Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, h := range c.hands {
		if h.bytes > 0 {
			s.From[name] += h.bytes
		}
	}
	s.Wasted += c.wasted
}

// snapshot returns what has arrived.
func (c *copying) snapshot(stats Stats) *Snapshot {
	return &Snapshot{
		Step: c.promise.step, Bytes: c.elected.bytes, Replays: c.promise.replays,
		Odd: slices.Sorted(maps.Keys(c.odd)), Forged: slices.Sorted(maps.Keys(c.forged)), Stats: stats, chunks: c.chunks,
	}
}
