package collective

// CallOptions are options of calls, for Comm.With. A zero field leaves the option of the
// communicator unchanged.
type CallOptions struct {
	// Algorithm is the algorithm of the calls, the same at all ranks. A call that the algorithm
	// cannot carry out fails with ErrArgument. With Auto, the default, the algorithm is chosen for
	// each call.
	Algorithm Algorithm
	// For is the purpose of the calls in reports of stalls, as in "bucket 2 of 7". It may
	// differ between ranks.
	For string
	// Priority orders messages that wait for the same link: messages of calls with higher
	// priority go first. The default is 0; it may be negative, and may differ between
	// ranks.
	Priority int32
	// Interruptible shortens segments, so that a more urgent message waits about a
	// millisecond at most for a segment of these calls, according to Options.Cost. All
	// ranks set the same value.
	Interruptible bool
	// Order is the order of the ring: a permutation of the ranks, the same at all ranks. Ring
	// algorithms then send from each rank to the next one in the order, and from the last to the
	// first. Other algorithms ignore it. Ranks whose orders differ find a mismatch; if Order is not
	// a permutation, every call fails with ErrArgument. ring.Order computes a good order. The
	// result of a call is the same for every order, except for the last bits of floating-point
	// sums. The slice is copied.
	Order []int
}

// callOptions are the CallOptions in effect, with defaults filled in.
type callOptions struct {
	algorithm Algorithm
	purpose   string
	priority  int32
	segment   int       // maximum size of a message, in bytes
	order     ringOrder // the order in which ring algorithms visit the ranks
}

// With returns the same communicator with other options. Calls on the result and on c share
// one sequence; c does not change. With allocates, so programs that make many calls keep
// the result. Communicators made from the result by Split and Dup inherit its Algorithm and
// no other option.
func (c *Comm) With(o CallOptions) *Comm {
	d := *c.orInvalid()
	if o.Algorithm != Auto {
		d.algorithm = o.Algorithm
	}
	if o.For != "" {
		d.purpose = o.For
	}
	if o.Priority != 0 {
		d.priority = o.Priority
	}
	if o.Interruptible {
		d.segment = shortSegment(d.opts.Segment, d.opts.Cost.Beta)
	}
	if o.Order != nil {
		d.order = newRingOrder(o.Order, d.size)
	}
	return &d
}

// withAlgorithm is With for the algorithm alone, which may be Auto.
func (c *Comm) withAlgorithm(a Algorithm) *Comm {
	d := *c.orInvalid()
	d.algorithm = a
	return &d
}

// within returns the options for calls on part, a subset of the group whole. The algorithm of these
// calls is chosen again, for the smaller number of ranks. The ranks of the part keep their relative
// order in the ring.
func (c *callOptions) within(whole, part *group) callOptions {
	d := callOptions{purpose: c.purpose, priority: c.priority, segment: c.segment}
	if c.order.ranks == nil {
		return d
	}
	var order []int
	for _, rank := range c.order.ranks {
		if i := part.commRank(whole.transportRank(rank)); i >= 0 {
			order = append(order, i)
		}
	}
	d.order = newRingOrder(order, part.size)
	return d
}

// segmentTime is the target duration of a message of an interruptible call, in seconds.
// minSegment is the lower bound of the length of such a message, in bytes.
const (
	segmentTime = 1e-3
	minSegment  = 16 << 10
)

// shortSegment returns the size of a segment, in bytes, that takes about segmentTime at beta
// seconds per byte, and at most segment. It is a multiple of 8.
func shortSegment(segment int, beta float64) int {
	for segment >= 2*minSegment && float64(segment)*beta > segmentTime {
		segment = segment / 16 * 8
	}
	return segment
}
