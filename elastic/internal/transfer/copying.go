package transfer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

const (
	maxFails = 4 // failed requests to a donor in a row, after which the donor is not used
	maxWrong = 3 // chunks with a wrong hash, after which a donor is not used
)

// errOdd means that a donor's manifest differs from the elected manifest.
var errOdd = errors.New("differs from the other donors")

// copying is the copy of one snapshot in progress, shared by one worker per donor. mu is not held
// during requests.
type copying struct {
	*chooser
	promise promise
	workers sync.WaitGroup

	// mu guards the fields below.
	mu      sync.Mutex
	changed chan struct{}    // closed at the next change, and then replaced by a new channel
	hands   map[string]*hand // donors by name
	working int              // number of workers that have not ended
	elected *manifest        // the majority's manifest; nil until enough donors have answered
	plan    *plan            // nil until a manifest is elected
	chunks  [][]byte         // received chunks by index
	wasted  int64            // bytes of chunks that arrived more than once
}

// hand is the state of the worker (goroutine) of one donor.
type hand struct {
	name string
	rank int // order in which donors were added; decides between equally common manifests
	// vote is the manifest of the donor. Only the donor's own worker writes it.
	vote  *manifest
	fails int   // failed requests to the donor in a row
	wrong int   // chunks with a wrong hash
	ended bool  // the worker has ended
	bytes int64 // bytes of chunks that were kept
}

// newCopying returns a copy of the promised snapshot, without workers.
func newCopying(ch *chooser, p promise) *copying {
	return &copying{chooser: ch, promise: p, changed: make(chan struct{}), hands: map[string]*hand{}}
}

// wakeLocked wakes all goroutines that wait for a change.
func (c *copying) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// state reports whether the copy is complete and how many workers run, and returns a channel that
// is closed at the next change.
func (c *copying) state() (done bool, working int, changes <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elected != nil && c.plan.left == 0, c.working, c.changed
}

// hand returns the state of a donor's worker, or nil.
func (c *copying) hand(name string) *hand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hands[name]
}

// next returns the range of chunks to request from a donor. A count of 0 means that there is none
// at present; changes is closed at the next change. A donor gets no range before a manifest is
// elected, nor if its own manifest differs from the elected one: each chunk of a donor is compared
// with the manifest of that donor.
func (c *copying) next(h *hand) (first, count int, changes <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.vote != nil && c.elected != nil && h.vote.sum == c.elected.sum {
		first, count = c.plan.next(h.name, c.working)
	}
	return first, count, c.changed
}

// giveBack ends a donor's claim to a range.
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

// deliver verifies a chunk and keeps it, unless another donor was faster. A kept chunk owns data.
func (c *copying) deliver(h *hand, i int, data []byte) (kept bool, err error) {
	// Hashing takes most of the time of deliver. Without the lock the workers hash in parallel.
	wrong := sumOf(data) != h.vote.hashes[i] // only donors with the elected manifest are asked for chunks
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong {
		h.wrong++
		c.forged[h.name] = true
		return false, fmt.Errorf("%w: chunk %d of %s has a wrong hash", errWire, i, h.name)
	}
	h.fails = 0
	// Another donor has sent the chunk first, after work stealing.
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

// note records the result of a request to a donor, and returns the number of failed requests in a
// row. It returns maxFails if the donor must no longer be used.
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
	c.electLocked() // the election no longer waits for this donor's manifest
	if errors.Is(err, errLost) {
		return maxFails
	}
	return h.fails
}

// leave records that a donor's worker ends.
func (c *copying) leave(h *hand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ended = true
	c.working--
	c.electLocked()
	c.wakeLocked()
}

// elect records the manifest of a donor.
func (c *copying) elect(h *hand, m *manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.vote = m
	c.electLocked()
	c.wakeLocked()
}

// differs reports whether the donor's manifest is not the elected one.
func (c *copying) differs(h *hand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elected != nil && h.vote.sum != c.elected.sum
}

// electLocked elects the manifest that more than half of the donors have sent, counting also the
// donors that may still send one. If no further manifest is expected the most common one wins, and
// of equally common manifests the manifest of the donor that was added first. The choice is final,
// as chunks of two manifests do not make up one state. A majority is needed because a single donor
// could otherwise give the newcomer a state that no other member has.
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
	// The order of ranks makes the choice among equals deterministic.
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

// account adds the traffic of this snapshot to the statistics.
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

// snapshot returns the complete copy.
func (c *copying) snapshot(stats Stats) *Snapshot {
	return &Snapshot{
		Step: c.promise.step, Bytes: c.elected.bytes, Replays: c.promise.replays,
		Odd: slices.Sorted(maps.Keys(c.odd)), Forged: slices.Sorted(maps.Keys(c.forged)), Stats: stats, chunks: c.chunks,
	}
}
