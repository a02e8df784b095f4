package collective

// CallOptions say how calls are carried out, for Comm.With. A field that is zero leaves it as
// it is with the communicator that With is called on.
type CallOptions struct {
	// Algorithm carries out the calls, the same at all ranks. A call that cannot be done by
	// it is an ErrArgument. Without one, Auto chooses for each call.
	Algorithm Algorithm
	// For says in reports of stalls what the calls are for, as in "bucket 2 of 7". It need
	// not be the same at all ranks.
	For string
	// Priority orders messages: where some wait for each other those of calls with a higher
	// one go first. It is 0 without one, may be negative, and need not be the same at all
	// ranks.
	Priority int32
	// Interruptible makes segments so short that more urgent messages wait for one about a
	// millisecond, by the costs of messages, where they are longer else. All ranks do the
	// same.
	Interruptible bool
	// Order is another order of the ring, the same at all ranks, which has each of them
	// once: algorithms of that kind go from each rank of it to the next, and from the last to
	// the first. Other algorithms do as before. Ranks whose orders differ find a mismatch;
	// with an order that is none every call is an ErrArgument. ring.Order finds a good one.
	// The result of a call is the same for every order, but for the last bits of
	// floating-point sums. The slice is copied.
	Order []int
}

// With returns the same communicator for calls that are carried out in another way: they take
// their places in the same sequence, and c stays as it is. It allocates, so programs that make
// many calls keep the result. Communicators made from it by Split and Dup have its Algorithm
// and nothing else of it.
func (c *Comm) With(o CallOptions) *Comm {
	d := *c.orNobody()
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
		d.segment = d.shortSegment()
	}
	if o.Order != nil {
		d.order = newRingOrder(o.Order, d.size)
	}
	return &d
}

// using is With another algorithm, which may be Auto.
func (c *Comm) using(a Algorithm) *Comm {
	d := *c.orNobody()
	d.algorithm = a
	return &d
}

// pieceTime is how long a message of an interruptible call takes, in seconds, and leastPiece
// how short it is at most for that.
const (
	pieceTime  = 1e-3
	leastPiece = 16 << 10
)

// shortSegment is the size of a segment in bytes that takes about pieceTime.
func (c *Comm) shortSegment() int {
	segment := c.opts.Segment
	for segment >= 2*leastPiece && float64(segment)*c.opts.Cost.Beta > pieceTime {
		segment = segment / 16 * 8
	}
	return segment
}

// pieces is the size in bytes of the pieces in which messages are sent.
func (c *Comm) pieces() int {
	if c.segment > 0 {
		return c.segment
	}
	return c.opts.Segment
}
