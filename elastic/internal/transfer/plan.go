package transfer

// maxRange bounds the chunks of one request. Between two requests a donor idles for a round trip; a
// range of this length makes that negligible.
const maxRange = 16

// plan assigns chunks to donors, with work stealing at the end. It does no I/O, and is not safe for
// concurrent use.
type plan struct {
	chunks []chunkState
	left   int // number of chunks not received
	// open is the number of missing chunks that are requested from no donor.
	open int
	// cursor is an index; no chunk before it is open.
	cursor int
}

// chunkState is the progress of one chunk.
type chunkState struct {
	done bool // received
	// holders are the donors from which the chunk is requested at present.
	holders []string
}

// newPlan returns a plan in which all chunks are open.
func newPlan(chunks int) *plan {
	return &plan{chunks: make([]chunkState, chunks), left: chunks, open: chunks}
}

// next returns the range of chunks to request from a donor; donors is the number of donors in use.
// While there are open chunks it returns successive open chunks. The ranges get shorter towards the
// end of the snapshot, so that all donors finish at about the same time. When no chunk is open it
// steals. count is 0 if there is nothing useful to request at present.
func (p *plan) next(donor string, donors int) (first, count int) {
	if p.open == 0 {
		return p.steal(donor)
	}
	for !p.chunks[p.cursor].open() {
		p.cursor++
	}
	// Half of a fair part of the open chunks, rounded up, so ranges shrink towards the end.
	most := min(maxRange, (p.open+2*donors-1)/(2*donors))
	first = p.cursor
	for i := first; i < len(p.chunks) && count < most && p.chunks[i].open(); i++ {
		p.chunks[i].holders = append(p.chunks[i].holders, donor)
		count++
	}
	p.open -= count
	return first, count
}

// steal returns a chunk that is requested from other donors and has not arrived. It chooses the
// chunk that is requested from the fewest donors, and of several such chunks the last, because a
// slow donor sends the last chunk last.
func (p *plan) steal(donor string) (first, count int) {
	best := -1
	// The end of the snapshot comes first, as slow donors send in ascending order.
	for i := len(p.chunks) - 1; i >= 0; i-- {
		c := &p.chunks[i]
		if !c.done && !c.heldBy(donor) && (best < 0 || len(c.holders) < len(p.chunks[best].holders)) {
			best = i
		}
	}
	if best < 0 {
		return 0, 0
	}
	p.chunks[best].holders = append(p.chunks[best].holders, donor)
	return best, 1
}

// finish marks a chunk as received, and reports whether the chunk has arrived for the first time.
func (p *plan) finish(i int) bool {
	c := &p.chunks[i]
	if c.done {
		return false
	}
	if c.open() {
		p.open--
	}
	c.done = true
	p.left--
	return true
}

// release ends a donor's claim to a range, whether it has sent the chunks or not.
func (p *plan) release(donor string, first, count int) {
	for i := first; i < first+count; i++ {
		c := &p.chunks[i]
		for k, h := range c.holders {
			if h == donor {
				c.holders = append(c.holders[:k], c.holders[k+1:]...)
				break
			}
		}
		if c.open() {
			p.open++
			// All chunks before the cursor are requested or done, so a chunk that is open again
			// moves the cursor back.
			p.cursor = min(p.cursor, i)
		}
	}
}

// needs reports whether any chunk of a range has not been received.
func (p *plan) needs(first, count int) bool {
	for i := first; i < first+count; i++ {
		if !p.chunks[i].done {
			return true
		}
	}
	return false
}

// open reports whether the chunk has neither been received nor requested.
func (c *chunkState) open() bool { return !c.done && len(c.holders) == 0 }

// heldBy reports whether the chunk is requested from a donor.
func (c *chunkState) heldBy(donor string) bool {
	for _, h := range c.holders {
		if h == donor {
			return true
		}
	}
	return false
}
