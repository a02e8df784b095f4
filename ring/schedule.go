package ring

// schedule says what one rank sends and receives, in which order, as numbers
// alone: it knows neither elements nor links.
//
// At hop h the rank receives chunk first-h-1 and sends chunk first-h, modulo the
// number of chunks and counted in the order of the ring. So it sends its first chunk unasked, and then at hop h what it
// received at hop h-1.
type schedule struct {
	bounds  []int // chunk c is [bounds[c], bounds[c+1])
	order   []int // of the chunks, as turn has it
	first   int   // the place in it of the chunk sent at hop 0
	sends   int   // hops at which the rank sends
	hops    int   // hops at which it receives
	folds   int   // so many hops fold what they receive, later ones overwrite
	segment int   // elements of a segment, but for the last of a chunk
	// reuse, if not 0: hop h writes the memory that hop h-reuse sends from.
	reuse int
}

// step is one segment that is sent or received.
type step struct {
	hop, chunk int
	lo, hi     int // elements, counted from the start of the chunk
	fold       bool
	// after counts what must be complete before: for a send the receives, as it
	// sends what they brought; for a receive the sends, as it writes what they read.
	after int
}

// turn is the place of a rank in the ring, whose ranks stand in that order; nil for their
// own. Chunks have the numbers of ranks, and travel in the same order.
type turn struct {
	place int
	order []int
}

// allReduce: the chunk of the rank to the right is complete at this rank after n-1 hops. Another n-1
// bring the others, into the memory of the chunks sent n-1 hops before.
func allReduce(t turn, bounds []int, segment int) schedule {
	n := len(bounds) - 1
	return schedule{bounds: bounds, order: t.order, first: t.place, sends: 2 * (n - 1), hops: 2 * (n - 1),
		folds: n - 1, segment: segment, reuse: n - 1}
}

// reduceScatter starts one chunk further left than allReduce, so that after n-1
// hops the chunk of this rank is complete. Sums under way lie in two slots by
// turns: hop h writes where hop h-2 wrote, and hop h-1 sends from there.
func reduceScatter(t turn, bounds []int, segment int) schedule {
	n := len(bounds) - 1
	return schedule{bounds: bounds, order: t.order, first: modulo(t.place-1, n), sends: n - 1, hops: n - 1,
		folds: n - 1, segment: segment, reuse: 1}
}

// allGather is the second half of allReduce. Nothing is written twice.
func allGather(t turn, bounds []int, segment int) schedule {
	n := len(bounds) - 1
	return schedule{bounds: bounds, order: t.order, first: t.place, sends: n - 1, hops: n - 1, segment: segment}
}

// broadcast has two chunks: chunk 1 is the vector, chunk 0 is empty. The root
// starts with the one; the others with the other, which is no message. distance
// is the number of hops from the root.
func broadcast(distance, size, n, segment int) schedule {
	s := schedule{bounds: []int{0, 0, n}, segment: segment}
	switch distance {
	case 0:
		s.first, s.sends = 1, 1
	case size - 1:
		s.hops = 1
	default:
		s.hops, s.sends = 1, 2
	}
	return s
}

// eachSend calls visit for each segment to be sent, in order, until it fails.
func (s *schedule) eachSend(visit func(step) error) error {
	received := 0
	for h := range s.sends {
		for j := range s.segments(h) {
			st := s.step(h, h, j)
			if h > 0 {
				received++
				st.after = received
			}
			if err := visit(st); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachReceive calls visit for each segment to be received, in order, until it fails.
func (s *schedule) eachReceive(visit func(step) error) error {
	for h := range s.hops {
		for j := range s.segments(h + 1) {
			st := s.step(h, h+1, j)
			st.fold = h < s.folds
			st.after = s.released(h, j)
			if err := visit(st); err != nil {
				return err
			}
		}
	}
	return nil
}

// step returns segment j of the chunk that lies back chunks left of the first.
func (s *schedule) step(hop, back, j int) step {
	c := s.chunk(back)
	lo := j * s.segment
	return step{hop: hop, chunk: c, lo: lo, hi: min(lo+s.segment, s.length(c))}
}

// released counts the sends that must have returned before segment j of hop h is
// written. The chunks of the two hops may differ in length.
func (s *schedule) released(h, j int) int {
	from := h - s.reuse
	if s.reuse == 0 || from < 0 {
		return 0
	}
	n := min(j+1, s.segments(from))
	for k := range from {
		n += s.segments(k)
	}
	return n
}

// chunk returns the chunk that lies back chunks left of the first.
func (s *schedule) chunk(back int) int {
	c := modulo(s.first-back, len(s.bounds)-1)
	if s.order != nil {
		c = s.order[c]
	}
	return c
}

// segments counts the segments of that chunk; an empty chunk has none.
func (s *schedule) segments(back int) int {
	return (s.length(s.chunk(back)) + s.segment - 1) / s.segment
}

// length returns the elements of chunk c.
func (s *schedule) length(c int) int { return s.bounds[c+1] - s.bounds[c] }

// longest returns the elements of the longest chunk.
func (s *schedule) longest() int {
	n := 0
	for c := range len(s.bounds) - 1 {
		n = max(n, s.length(c))
	}
	return n
}

// modulo returns a mod n in [0, n), for negative a, too.
func modulo(a, n int) int { return (a%n + n) % n }
