package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
)

const (
	// levelSegments is the number of segments in a piece of the vector. A piece is the unit of the
	// pipeline between levels: it is reduced between groups while the ranks of each group reduce
	// the next piece.
	levelSegments = 4
	// levelWindow is the in-flight window: the maximum number of pieces of a call that are reduced
	// between groups at the same time. Over a long distance a single piece would use only a small
	// part of the bandwidth-delay product.
	levelWindow = 16
	// levelInline is the length in bytes up to which a piece is sent to the ranks of a host by
	// messages, even if they could read it in shared memory. Reading also needs messages: one with
	// the position, and one for the acknowledgement.
	levelInline = 8 << 10
)

// allReduceHierarchical is the hierarchical (two-level) AllReduce. Each group reduces its vectors
// at its leader; the leaders reduce these sums among each other; each leader distributes
// the result in its group.
//
// A group is a host, which works in shared memory. On a second level, the groups are sites: the
// leaders of hosts, or the ranks of hosts with one rank each, which exchange messages. So each byte
// is sent once between hosts and once between sites, whatever the number of ranks. Only the
// reductions within a group take the lock. Between groups and during the distribution, calls with a
// higher priority overtake others.
//
// Costs for k sites of at most m hosts each and S bytes, besides the work in shared memory: within
// a site, by trees, lg m steps to the leader and lg m steps back, with S lg m bytes sent by the
// leader; between sites, the costs of AllReduce for k ranks, which are 2(k-1) steps and 2(k-1)/k S
// bytes for a ring, so S bytes in each direction between two sites. A ring of all n hosts would
// send 2(n-1)/n S bytes over each link between sites. The pieces of a vector occupy all levels at
// the same time, so a long vector takes as long as the slowest level.
func allReduceHierarchical[T Number](o *operation, dst, src []T, red Reduction[T]) error {
	whole := red // with the final function, which applies to the result of all ranks
	red.Finish = nil
	width := max(1, red.Width)
	l := hierarchical[T]{operation: o, dst: dst, src: src, op: func() Reduction[T] { return red },
		pieceLength: max(1, levelSegments*o.opts.Segment/kernel.Size[T]()/width) * width, inFlight: make(chan *Handle, levelWindow)}
	if err := l.run(); err != nil {
		return err
	}
	finish(whole, dst, o.size)
	return nil
}

// hierarchical is a hierarchical AllReduce in progress at this rank. Two goroutines carry it out
// for long vectors: reduceLocal and distribute. Every failure revokes, so the parts of the call
// need no context.
type hierarchical[T Number] struct {
	*operation
	dst, src    []T
	op          Op[T]        // the reduction without its final function
	pieceLength int          // elements of a piece
	inFlight    chan *Handle // calls in progress between the groups, in order of pieces; empty at ranks that are no leader
	exported    bool         // the other ranks of the host read from the leader's dst
}

// run reduces all pieces locally, and distributes each piece after its reduction between groups.
// With several pieces the work within groups overlaps with the reductions between groups.
func (h *hierarchical[T]) run() (err error) {
	if len(h.src) <= h.pieceLength {
		if err := h.reduceLocal(); err != nil {
			return err
		}
		return h.distribute()
	}
	// distribute runs concurrently with reduceLocal, on the pieces that reduceLocal has finished.
	distributed := make(chan error, 1)
	go func() { distributed <- h.distribute() }()
	defer func() {
		if derr := <-distributed; err == nil {
			err = derr
		}
	}()
	return h.reduceLocal()
}

// forPieces calls do for each piece of the vector; an empty vector is one piece.
func (h *hierarchical[T]) forPieces(do func(first, end int) error) error {
	for first := 0; first == 0 || first < len(h.src); first += h.pieceLength {
		if err := do(first, min(first+h.pieceLength, len(h.src))); err != nil {
			return err
		}
	}
	return nil
}

// reduceLocal reduces the vectors of this group at its leader, which starts the reduction between
// groups. The lock is passed to the next call only when the reductions of all pieces have been
// started, so all leaders start reductions in the same order.
func (h *hierarchical[T]) reduceLocal() (err error) {
	err = errPanicked // the user's reduction may panic
	defer func() {
		if err != nil {
			h.revoke(err) // otherwise distribute would wait for ever
		}
		h.releaseLock(err == nil)
		close(h.inFlight)
	}()
	if err := h.lock.acquire(h.operation); err != nil {
		return err
	}
	return h.forPieces(h.reducePiece)
}

// reducePiece reduces one piece within the group; the leader starts its reduction between
// groups.
func (h *hierarchical[T]) reducePiece(first, end int) error {
	ctx, piece := context.Background(), h.dst[first:end]
	if err := Reduce(ctx, h.level.local, piece, h.src[first:end], h.op, 0); err != nil {
		return err
	}
	if c := h.level.leaders; c != nil {
		between := *c
		between.callOptions = h.within(&h.group, &c.group)
		h.inFlight <- IAllReduce(ctx, &between, piece, piece, h.op)
	}
	return nil
}

// distribute distributes each piece in the group after its reduction between groups: the leader
// sends, and the other ranks receive. When it returns, no call in progress uses dst.
func (h *hierarchical[T]) distribute() error {
	do := h.recvPiece
	if h.level.leaders != nil {
		do = h.sendPiece
	}
	err := h.forPieces(do)
	if err == nil && h.exported {
		err = h.ackRead()
	}
	if err != nil {
		h.revoke(err)
	}
	for call := range h.inFlight {
		_ = call.Wait(context.Background()) // ends soon, as the communicator is revoked
	}
	if err != nil && h.exported && h.level.leaders != nil { // the other ranks must not read later contents of dst
		return errors.Join(err, h.shared.Arena.Abandon(kernel.Bytes(h.dst)))
	}
	return err
}

// sendPiece waits for the reduction of a piece between groups, and sends the result to the other
// ranks of the group.
func (h *hierarchical[T]) sendPiece(first, end int) error {
	call, more := <-h.inFlight
	if !more {
		return h.revocationCause()
	}
	if err := call.Wait(context.Background()); err != nil {
		return err
	}
	h.recordProgress()
	out := kernel.Bytes(h.dst[first:end])
	return h.forward(out, h.export(out))
}

// forward sends a piece to the children of this rank. If ref is not 0 the ranks read the whole
// pages of the piece in shared memory, and forward sends only the position and the bytes outside
// these pages.
func (h *hierarchical[T]) forward(out []byte, ref shm.Ref) error {
	for _, to := range h.children() {
		if h.exportable(out) {
			if err := h.send(to, binary.LittleEndian.AppendUint64(nil, uint64(ref))); err != nil {
				return err
			}
		}
		err := forUnexported(ref, out, func(part []byte) error { return h.send(to, part) })
		if err != nil {
			return err
		}
	}
	return nil
}

// exportable reports whether a piece may be read in the memory of the leader. The leader then sends
// a message with the position to each rank of its host. The position is 0 if the leader does not
// export the piece.
func (h *hierarchical[T]) exportable(v []byte) bool {
	return h.level.local.lane != nil && len(v) > levelInline
}

// parent returns the rank that sends the result to this rank. With shared memory the leader
// sends to all; by messages the result goes along a binomial tree.
func (h *hierarchical[T]) parent() int {
	local, localRank := h.level.localRanks, h.level.local.rank
	if h.level.local.lane != nil {
		return local[0]
	}
	return local[localRank&(localRank-1)]
}

// children returns the ranks to which this rank sends the result. With shared memory the leader
// sends to all other ranks of the host, and these ranks send to none. By messages, each rank sends
// to its children in the binomial tree, the farthest first.
func (h *hierarchical[T]) children() []int {
	local, localRank := h.level.localRanks, h.level.local.rank
	if h.level.local.lane != nil {
		if localRank > 0 {
			return nil
		}
		return local[1:]
	}
	var to []int
	// The farthest child has the largest subtree below it, so this rank sends to it first.
	for d := 1; localRank+d < len(local) && localRank&d == 0; d *= 2 {
		to = append(to, local[localRank+d])
	}
	slices.Reverse(to)
	return to
}

// recvPiece receives a piece that the parent has sent by forward, and sends it on to the children.
func (h *hierarchical[T]) recvPiece(first, end int) error {
	in, from := kernel.Bytes(h.dst[first:end]), h.parent()
	var ref shm.Ref
	if h.exportable(in) {
		var where [8]byte
		if err := h.recv(from, where[:]); err != nil {
			return err
		}
		ref = shm.Ref(binary.LittleEndian.Uint64(where[:]))
	}
	if ref != 0 {
		if err := h.readExported(in, ref); err != nil {
			return err
		}
	}
	if err := forUnexported(ref, in, func(part []byte) error { return h.recv(from, part) }); err != nil {
		return err
	}
	return h.forward(in, 0)
}

// export returns the position at which the other ranks of the host can read v; 0 if they cannot
// read v, or if the host has no other ranks. A rank alone on its host has neither a lane nor,
// usually, shared memory.
func (h *hierarchical[T]) export(v []byte) shm.Ref {
	if !h.exportable(v) || h.shared.Arena == nil {
		return 0
	}
	ref := h.shared.Arena.Ref(v)
	h.exported = h.exported || ref != 0
	return ref
}

// readExported copies the whole pages of a piece from the leader's memory. If the call fails, the
// leader removes exactly these pages from the shared memory, so a rank never reads later content
// there.
func (h *hierarchical[T]) readExported(in []byte, ref shm.Ref) error {
	lane := h.level.local.lane
	arena, ok := lane.ArenaBytes(0, ref, len(in))
	if !ok {
		return fmt.Errorf("rank %d of the transport exports %d bytes at %#x, outside its arena", lane.ranks[0], len(in), uint64(ref))
	}
	head, tail := ref.PageEdges(len(in))
	copy(in[head:len(in)-tail], arena[head:])
	h.exported = true
	return nil
}

// forUnexported calls do for the parts of a vector that are not readable at ref: the whole vector
// if ref is 0, otherwise its incomplete pages at both ends.
func forUnexported(ref shm.Ref, v []byte, do func(part []byte) error) error {
	if ref == 0 {
		return do(v)
	}
	head, tail := ref.PageEdges(len(v))
	for _, part := range [][]byte{v[:head], v[len(v)-tail:]} {
		if len(part) == 0 {
			continue
		}
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

// ackRead acknowledges to the leader that this rank has read everything. At the leader, ackRead
// waits for the acknowledgements of all other ranks, so that the leader may use its dst again.
func (h *hierarchical[T]) ackRead() error {
	if h.level.leaders == nil {
		return h.send(h.level.localRanks[0], nil)
	}
	for _, from := range h.level.localRanks[1:] {
		if err := h.recv(from, nil); err != nil {
			return err
		}
	}
	return nil
}
