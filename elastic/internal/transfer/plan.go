package transfer

// maxRange is the most chunks that a donor is asked for at once. Between two requests
// a donor idles for a round trip; a range is long enough to make that small.
const maxRange = 16

// plan decides who fetches which chunks. It is pure, and not safe for concurrent use.
type plan struct {
	chunks []chunkState
	left   int // chunks not done
	open   int // chunks not done that nobody fetches
	cursor int // below it no chunk is open
}

// chunkState is where one chunk stands.
type chunkState struct {
	done    bool
	holders []string // donors that are asked for it at present
}

func newPlan(chunks int) *plan {
	return &plan{chunks: make([]chunkState, chunks), left: chunks, open: chunks}
}

// next returns the range that a donor, one of so many, is to be asked for. While there
// are open chunks it is a run of them, shorter towards the end, so that all finish at
// about the same time. Then it is a chunk that others have been asked for and have not
// sent, from the back, where a slow one gets to last. count is 0 if there is nothing
// useful to do at present.
func (p *plan) next(donor string, donors int) (first, count int) {
	if p.open == 0 {
		return p.steal(donor)
	}
	for !p.chunks[p.cursor].open() {
		p.cursor++
	}
	most := min(maxRange, (p.open+2*donors-1)/(2*donors))
	first = p.cursor
	for i := first; i < len(p.chunks) && count < most && p.chunks[i].open(); i++ {
		p.chunks[i].holders = append(p.chunks[i].holders, donor)
		count++
	}
	p.open -= count
	return first, count
}

// steal chooses a chunk that others fetch: the one that the fewest do.
func (p *plan) steal(donor string) (first, count int) {
	best := -1
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

// finish marks a chunk as done, and reports whether it is new.
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

// release takes a range back from a donor, whether it sent it or not.
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
			p.cursor = min(p.cursor, i)
		}
	}
}

// needs reports whether any chunk of a range is not done.
func (p *plan) needs(first, count int) bool {
	for i := first; i < first+count; i++ {
		if !p.chunks[i].done {
			return true
		}
	}
	return false
}

// open reports whether nobody has sent the chunk and nobody is asked for it.
func (c *chunkState) open() bool { return !c.done && len(c.holders) == 0 }

// heldBy reports whether a donor is asked for the chunk.
func (c *chunkState) heldBy(donor string) bool {
	for _, h := range c.holders {
		if h == donor {
			return true
		}
	}
	return false
}
