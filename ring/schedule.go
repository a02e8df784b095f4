package ring

// schedule is the list of segments that one rank sends and receives in a call, and their order. It
// consists of numbers only, without elements or links, so that tests can replay it.
//
// At hop h the rank receives chunk first-h-1 and sends chunk first-h, modulo the number of chunks
// and counted in the order of the ring. So at hop 0 it sends its own elements of the chunk with the
// number first, and at each later hop the chunk that it received at the hop before.
type schedule struct {
	bounds  []int // chunk c is [bounds[c], bounds[c+1])
	order   []int // order of the chunks, as in turn
	first   int   // place in order of the chunk sent at hop 0
	sends   int   // number of hops at which the rank sends
	hops    int   // number of hops at which the rank receives
	folds   int   // number of hops that reduce the received chunk; later hops overwrite
	segment int   // elements of a segment; the last segment of a chunk may be shorter
	// reuse, if not 0, is the distance of memory reuse: hop h writes the memory from which hop
	// h-reuse sends.
	reuse int
}

// step is one segment that is sent or received.
type step struct {
	hop, chunk int
	lo, hi     int  // range of elements, from the start of the chunk
	fold       bool // reduce the received segment instead of overwriting
	// after is the number of segments that must be finished before this step. For a send these are
	// received segments, because the send passes on their data; for a receive these are sent
	// segments, because the receive overwrites their data.
	after int
}

// turn is the place of a rank in the ring. order lists the ranks in the order of the ring; nil
// stands for 0, 1, 2 and so on. Chunks are numbered like ranks and travel in the same order.
type turn struct {
	place int
	order []int
}

// allReduce returns the schedule of an all-reduce. After n-1 hops this rank has the complete chunk
// of its right neighbour. During another n-1 hops it receives the other complete chunks, into the
// memory of the chunks that it sent n-1 hops before.
func allReduce(t turn, bounds []int, segment int) schedule {
	n := len(bounds) - 1
	return schedule{bounds: bounds, order: t.order, first: t.place, sends: 2 * (n - 1), hops: 2 * (n - 1),
		folds: n - 1, segment: segment, reuse: n - 1}
}

// reduceScatter returns the schedule of a reduce-scatter. It starts one chunk further left than
// allReduce, so that after n-1 hops the chunk of this rank is complete. Partial sums alternate
// between two slots: hop h writes the slot that hop h-2 wrote and that hop h-1 sends.
func reduceScatter(t turn, bounds []int, segment int) schedule {
	n := len(bounds) - 1
	return schedule{bounds: bounds, order: t.order, first: modulo(t.place-1, n), sends: n - 1, hops: n - 1,
		folds: n - 1, segment: segment, reuse: 1}
}

// allGather returns the schedule of an all-gather, the second half of an all-reduce. No memory is
// written twice.
func allGather(t turn, bounds []int, segment int) schedule {
	n := len(bounds) - 1
	return schedule{bounds: bounds, order: t.order, first: t.place, sends: n - 1, hops: n - 1, segment: segment}
}

// broadcast returns the schedule of a pipelined broadcast. distance is the number of hops from the
// root. There are two chunks: chunk 1 is the vector; chunk 0 is empty, so it has no messages. The
// root starts with chunk 1, the other ranks start with chunk 0.
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

// eachSend calls visit for each segment to be sent, in order, and returns its first error.
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

// eachReceive calls visit for each segment to be received, in order, and returns its first error.
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

// step returns segment j of a chunk, as part of the given hop. The argument back is the distance of
// the chunk, to the left, from the place first.
func (s *schedule) step(hop, back, j int) step {
	c := s.chunk(back)
	lo := j * s.segment
	return step{hop: hop, chunk: c, lo: lo, hi: min(lo+s.segment, s.length(c))}
}

// released returns the number of sends that must have returned before segment j of hop h is
// written, because these sends read the same memory. The chunks of the two hops may differ in
// length.
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

// chunk returns the number of the chunk at the distance back, to the left, from the place first.
func (s *schedule) chunk(back int) int {
	c := modulo(s.first-back, len(s.bounds)-1)
	if s.order != nil {
		c = s.order[c]
	}
	return c
}

// segments returns the number of segments of the chunk at the distance back; an empty chunk has no
// segments.
func (s *schedule) segments(back int) int {
	return (s.length(s.chunk(back)) + s.segment - 1) / s.segment
}

// length returns the number of elements of chunk c.
func (s *schedule) length(c int) int { return s.bounds[c+1] - s.bounds[c] }

// longest returns the number of elements of the longest chunk.
func (s *schedule) longest() int {
	n := 0
	for c := range len(s.bounds) - 1 {
		n = max(n, s.length(c))
	}
	return n
}

// modulo returns a mod n in [0, n), for negative a too.
func modulo(a, n int) int { return (a%n + n) % n }
