package collective

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/ring"
)

// memory is the shared memory of a host: the transport's part, and this rank's attachment.
type memory struct {
	*transport.Shared
	*shm.Attached

	mu        sync.Mutex // guards usedLanes
	usedLanes int        // number of lanes that this rank has used
}

// memoryOf returns the memory that a transport shares, or nil if calls cannot use it.
func memoryOf(s *transport.Shared) *memory {
	if s == nil {
		return nil
	}
	m, ok := s.Memory.(*shm.Attached)
	if !ok {
		return nil
	}
	return &memory{Shared: s, Attached: m}
}

// lane is the part of the shared memory in which a communicator carries out its calls, one after
// the other in the order in which they began. The field current and the fields after it belong to
// the call that holds the lock.
type lane struct {
	*shm.Lane
	shared  *memory
	ranks   []int       // rank of the transport, by rank in the lane
	lock    *ticketLock // serialises the calls
	current *operation  // the call that holds the lock
	header  shm.Header  // header that current has posted
	bounds  []int       // cached result of chunks for the last length
}

// chunks is ring.ChunksOf for the ranks of the lane. Only the call that holds the lock may use
// it; the result is valid until the next call.
func (l *lane) chunks(length, width int) []int {
	if width > 1 {
		return ring.ChunksOf(length, len(l.ranks), width)
	}
	if l.bounds == nil || l.bounds[len(l.ranks)] != length {
		l.bounds = ring.Chunks(length, len(l.ranks))
	}
	return l.bounds
}

// firstFreeLane returns the first lane that this rank has not used; 0 without shared memory.
func (m *memory) firstFreeLane() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(m.usedLanes)
}

// assignLane returns lane i for a communicator of the given ranks of the transport. It is nil if
// there is no shared memory or no such lane, if not all ranks share the memory, or for one rank.
func (m *memory) assignLane(i int, ranks []int) *lane {
	if m == nil || len(ranks) == 1 || i >= shm.Lanes {
		return nil
	}
	locals := make([]int, len(ranks))
	for rank, at := range ranks {
		// A lane identifies each rank by its rank in the segment.
		locals[rank] = slices.Index(m.Ranks, at)
		if locals[rank] < 0 {
			return nil
		}
	}
	l := &lane{Lane: m.Segment.Lane(i, locals), shared: m, ranks: ranks, lock: new(ticketLock)}
	l.Watch = l.recordWait
	m.mu.Lock()
	m.usedLanes = i + 1
	m.mu.Unlock()
	return l
}

// recordWait records the rank for which the call in the lane waits, or -1 if it no longer waits.
// shm calls it before a call sleeps (shm.Lane.Watch), so short calls do not pay for it.
func (l *lane) recordWait(rank int) {
	if rank < 0 {
		l.current.recvFrom.Store(0)
		l.current.recordProgress()
		return
	}
	l.current.recvFrom.Store(int32(l.ranks[rank] + 1))
	// The call is about to sleep, so from here on the end of its context must wake it.
	l.current.watchContext()
}

// runShared carries out a call in the lane. do posts the header and does the work.
func (o *operation) runShared(do func(l *shm.Lane, h *shm.Header) error) error {
	l := o.lane
	err := l.lock.acquire(o)
	if err == nil && l.Revoked() {
		err = shm.ErrRevoked // fail even if all ranks have posted: a revoked communicator carries out no call
	}
	if err == nil {
		l.current = o
		pack(&o.env, &l.header)
		err = do(l.Lane, &l.header)
	}
	return l.toTransportError(o, err)
}

// toTransportError converts an error of the segment, whose ranks are ranks of the lane, to an error
// with ranks of the transport.
func (l *lane) toTransportError(o *operation, err error) error {
	if err == nil {
		return nil
	}
	var m *shm.MismatchError
	var gone *shm.GoneError
	switch {
	case errors.As(err, &m):
		e := envelopeOf(m.Header)
		return &MismatchError{RankA: o.self, A: o.env.Call, RankB: l.ranks[m.Rank], B: e.Call, Detail: difference(e, o.env)}
	case errors.As(err, &gone):
		return &PeerError{Rank: l.ranks[gone.Rank], Cause: "closed"}
	case errors.Is(err, shm.ErrRevoked):
		if cause := l.shared.Cause(); cause != nil {
			return cause
		}
	}
	return err
}

// difference describes the difference of two envelopes with equal calls, for the detail of a
// MismatchError.
func difference(e, o transport.Envelope) string {
	switch {
	case e.Call != o.Call:
		return ""
	case e.Comm != o.Comm:
		return "on another communicator"
	}
	return "at another place in the sequence"
}

// pack encodes an envelope as a header. All ranks of the lane must post equal headers for a call,
// so the priority is left out: it may differ between ranks.
func pack(e *transport.Envelope, h *shm.Header) {
	c := &e.Call
	h[0], h[1] = e.Comm, uint64(e.Seq)|uint64(c.Kind)<<32|uint64(c.Type)<<40|uint64(c.Algorithm)<<48|uint64(c.Width)<<56
	h[2], h[3] = binary.LittleEndian.Uint64(c.Op[:]), binary.LittleEndian.Uint64(c.Op[8:])
	h[4], h[5] = c.Count, uint64(uint32(c.Root))|uint64(c.Layout)<<32
	h[6] = uint64(c.Segment)
}

// envelopeOf decodes the output of pack.
func envelopeOf(h shm.Header) transport.Envelope {
	e := transport.Envelope{Comm: h[0], Seq: uint32(h[1]), Call: transport.Call{
		Kind: transport.Kind(h[1] >> 32), Type: dtype.Type(h[1] >> 40), Algorithm: Algorithm(h[1] >> 48), Width: uint8(h[1] >> 56),
		Root: int32(h[5]), Layout: uint32(h[5] >> 32), Count: h[4], Segment: uint32(h[6])}}
	binary.LittleEndian.PutUint64(e.Call.Op[:], h[2])
	binary.LittleEndian.PutUint64(e.Call.Op[8:], h[3])
	return e
}

// reducerOf returns the reduction for package shm. shm reduces in the order of ranks, so reductions
// that do not commute are allowed.
func reducerOf[T Number](red Reduction[T]) shm.Reducer[T] {
	return shm.Reducer[T]{Width: red.Width, Pair: red.Fold, All: red.FoldAll}
}

// gatherShared copies the parts of all ranks, with bounds b, to root, or to all ranks if root is
// shm.Everyone.
func gatherShared[T Number](o *operation, dst, src []T, b []int, root int) error {
	v := shm.Vectors[T]{Dst: dst, Src: src, Bounds: b}
	return o.runShared(func(l *shm.Lane, h *shm.Header) error {
		l.Post(h, shm.Offsets{})
		return shm.AllGather(l, v, root)
	})
}
