package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

const (
	maxFails = 4 // failed requests to a donor in a row, after which the donor is not used
	maxWrong = 3 // chunks with a wrong hash, after which a donor is not used
	// maxRange bounds the chunks of one request. Between two requests a donor idles for a round
	// trip; a range of this length makes that negligible.
	maxRange = 16
)

// copying is the copy of one snapshot in progress, shared by one worker (goroutine) per donor. A
// worker first requests the manifest of its donor. When a manifest is elected, it requests ranges
// of chunks. mu is not held during requests.
type copying struct {
	*chooser
	promise promise
	end     context.CancelFunc // ends the workers
	decided chan struct{}      // closed when a manifest is elected

	// mu guards the fields below.
	mu      sync.Mutex
	hands   []*hand   // the donors, in the order in which they were chosen
	elected *manifest // the majority's manifest; nil until enough donors have answered
	chunks  [][]byte  // received chunks by index; nil for a missing one
	asked   []int     // by chunk, the number of donors from which it is requested at present
	left    int       // number of missing chunks
	cursor  int       // all chunks before it are received or requested
}

// hand is the state of one donor. Only the donor's own worker changes it. The other workers read
// vote and counted, so these two are changed with the lock.
type hand struct {
	name    string
	vote    *manifest // nil until the donor has sent it
	counted bool      // the donor has voted, or a request to it has failed
	fails   int       // failed requests to the donor in a row
	wrong   int       // chunks with a wrong hash
}

// run copies the snapshot. errLost means that no donor is left.
func (c *copying) run(ctx context.Context) error {
	working, end := context.WithCancel(ctx)
	defer end()
	c.end, c.decided = end, make(chan struct{})
	for _, name := range c.promise.donors {
		c.hands = append(c.hands, &hand{name: name})
	}
	var workers sync.WaitGroup
	for _, h := range c.hands {
		workers.Go(func() { c.work(working, h) })
	}
	workers.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.elected == nil || c.left > 0 {
		return errLost
	}
	return nil
}

// work sends requests to a donor until the copy is complete, the donor is lost or fails too often,
// or ctx ends.
func (c *copying) work(ctx context.Context, h *hand) {
	for {
		err := c.turn(ctx, h)
		if err == nil {
			h.fails = 0
			continue
		}
		h.fails++
		c.count(h, nil)
		// h.fails is below maxFails when it is used as a shift, so the pause stays short.
		if errors.Is(err, errLost) || h.fails >= maxFails || pause.For(ctx, firstPause<<h.fails) != nil {
			return
		}
	}
}

// turn sends the next request to a donor. errLost means that the donor is of no further use.
func (c *copying) turn(ctx context.Context, h *hand) error {
	if h.vote == nil {
		return c.fetchManifest(ctx, h)
	}
	select {
	case <-c.decided:
	case <-ctx.Done():
	}
	first, count := c.claim(h)
	if count == 0 {
		return errLost
	}
	// Chunks that this donor does not send are requested from other donors.
	defer c.release(first, count)
	return c.fetchRange(ctx, h, first, count)
}

// fetchManifest requests the hashes of the snapshot. The donor sends them when the snapshot exists.
func (c *copying) fetchManifest(ctx context.Context, h *hand) error {
	wait := int(c.o.wait() / time.Millisecond)
	a, err := c.ask(ctx, h.name, request{Do: opManifest, Step: c.promise.step, WaitMS: wait})
	if err != nil {
		return err
	}
	defer a.stop()
	switch {
	case a.Code == codePending && (!a.Resting || a.At >= c.promise.step):
		return nil
	case a.Code != codeOK: // this includes a donor that rests before the step, as the step may never come
		return errLost
	}
	m, err := readManifest(a.Reader, c.promise.step, a.header)
	if err == nil {
		c.count(h, m)
	}
	return err
}

// count records that a donor has sent a manifest, or that it has failed if m is nil. A donor whose
// manifest is not the elected one is odd.
func (c *copying) count(h *hand, m *manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.counted = true
	if m != nil {
		h.vote = m
	}
	if c.elected == nil {
		c.electLocked()
	}
	for _, o := range c.hands {
		if c.elected != nil && o.vote != nil && o.vote.sum != c.elected.sum {
			c.odd[o.name] = true
		}
	}
}

// electLocked elects the manifest that more than half of the donors have sent, counting also the
// donors that may still send one. If no further manifest is expected the most common one wins, and
// of equally common manifests the manifest of the donor that was chosen first. The choice is final,
// as chunks of two manifests do not make up one state. A majority is needed because a single donor
// could otherwise give the newcomer a state that no other member has.
func (c *copying) electLocked() {
	votes := map[sum]int{}
	voters, waiting := 0, 0
	for _, h := range c.hands {
		switch {
		case h.vote != nil:
			votes[h.vote.sum]++
			voters++
		case !h.counted:
			waiting++
		}
	}
	var best *manifest
	for _, h := range c.hands {
		if h.vote != nil && (best == nil || votes[h.vote.sum] > votes[best.sum]) {
			best = h.vote
		}
	}
	if best == nil || waiting > 0 && 2*votes[best.sum] <= voters+waiting {
		return
	}
	c.elected, c.left = best, len(best.hashes)
	c.chunks, c.asked = make([][]byte, c.left), make([]int, c.left)
	close(c.decided)
	if c.left == 0 {
		c.end()
	}
}

// claim returns the range of chunks to request from a donor. It is empty if no chunk is missing, or
// if the donor is odd.
//
// While there are open chunks, which are requested from no donor, claim returns successive open
// chunks. The ranges get shorter towards the end of the snapshot, so that all donors finish at
// about the same time. When no chunk is open, claim steals a chunk that is requested from other
// donors.
func (c *copying) claim(h *hand) (first, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 || c.odd[h.name] {
		return 0, 0
	}
	for c.cursor < len(c.chunks) && !c.openLocked(c.cursor) {
		c.cursor++
	}
	if first = c.cursor; first == len(c.chunks) {
		first = c.stealLocked()
	}
	// Half of a fair part of the missing chunks, rounded up.
	most := min(maxRange, (c.left+2*len(c.hands)-1)/(2*len(c.hands)))
	for count = 1; count < most && first+count < len(c.chunks) && c.openLocked(first+count); {
		count++
	}
	for i := range count {
		c.asked[first+i]++
	}
	return first, count
}

// openLocked reports whether a chunk has neither been received nor requested.
func (c *copying) openLocked(i int) bool { return c.chunks[i] == nil && c.asked[i] == 0 }

// stealLocked returns the missing chunk that is requested from the fewest donors, and of several
// such chunks the last, because a slow donor sends the last chunk last.
func (c *copying) stealLocked() int {
	best := -1
	for i, data := range c.chunks {
		if data == nil && (best < 0 || c.asked[i] <= c.asked[best]) {
			best = i
		}
	}
	return best
}

// release ends a donor's claim to a range, whether it has sent the chunks or not.
func (c *copying) release(first, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := first; i < first+count; i++ {
		if c.asked[i]--; c.openLocked(i) {
			c.cursor = min(c.cursor, i)
		}
	}
}

// fetchRange requests chunks. It stops early when other donors have sent the remaining chunks.
func (c *copying) fetchRange(ctx context.Context, h *hand, first, count int) error {
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
	// The remaining chunks are not read if other donors have sent them: stop cancels the answer.
	for i := first; c.needs(i, first+count); i++ {
		data, err := readN(a, nil, int64(c.elected.length(i)))
		if err != nil {
			return fmt.Errorf("chunk %d of %s: %w", i, h.name, err)
		}
		if err := c.deliver(h, i, data); err != nil {
			return err
		}
	}
	return nil
}

// needs reports whether any chunk of a range is missing.
func (c *copying) needs(first, end int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.chunks[first:end], func(data []byte) bool { return data == nil })
}

// deliver verifies a chunk and keeps it, unless another donor was faster.
func (c *copying) deliver(h *hand, i int, data []byte) error {
	// Hashing takes most of the time of deliver. Without the lock the workers hash in parallel.
	wrong := sumOf(data) != c.elected.hashes[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong {
		h.wrong++
		c.forged[h.name] = true
		if h.wrong >= maxWrong {
			c.odd[h.name] = true
		}
		return fmt.Errorf("%w: chunk %d of %s has a wrong hash", errWire, i, h.name)
	}
	h.fails = 0
	// Another donor may have sent the chunk first, after work stealing.
	if c.chunks[i] == nil {
		c.chunks[i] = data
		c.left--
	}
	if c.left == 0 {
		c.end()
	}
	return nil
}
