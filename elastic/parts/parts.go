// Package parts keeps state that only some members of a group hold: it is too large for each member,
// or belongs to samples of which each member has its own. The state consists of numbered pieces.
// Each piece has an owner, which computes its next value, and copies at other members, which take
// over when the owner dies. When members join, leave or die, pieces move to other members between two
// steps.
//
//	p := parts.New[float64](lengths, parts.Options{Copies: 1})
//	for t := range g.Steps(ctx, elastic.Vectors(&step, w, p.Tag()), steps) {
//		lost, err := p.Settle(ctx, t) // places the pieces, and moves those that have to move
//		if err != nil {
//			continue
//		}
//		... // makes the lost pieces anew
//		for k, value := range p.Own() {
//			next := p.Next(k) // equals value at first
//			...
//		}
//		if p.Replicate(ctx) != nil || collective.AllReduce(ctx, t.Comm, sum, sum, op) != nil {
//			continue // the step is tried again
//		}
//		... // commits sum to w
//		p.Commit()
//		step++
//	}
//
// # Stage, tail, commit
//
// Next and Replicate stage: the owner and the copies have the next value of a piece besides the
// committed one. The tail is the last collective call of the step, at the earliest after Replicate. A
// collective call returns nil only after all ranks have entered it. So if one member has committed a
// step, all members of the attempt have staged it completely, and no message about the commit is
// needed. A member that missed the commit takes its staged values at the next Settle.
//
// The Tag in the common state tells which attempt the members have committed. An attempt that failed
// may have staged other bits than the one that was committed, and its values are dropped.
//
// # Losses
//
// Each member in turn may die without a loss if Copies is at least 1. Copies are on another host if
// there is one. If more members die at once than there are copies, pieces are lost: Settle returns
// them at all members, with zeros, until a step is committed, and the program makes them anew from its
// data. A member that is asked to leave hands over its pieces first, also without copies.
//
// The pieces are in no checkpoint. After a resume all are lost.
package parts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// Options are the options of New. Copies is the same at all members.
type Options struct {
	// Copies is the number of members besides the owner that hold a piece. With fewer members there
	// are fewer copies.
	Copies int
	// Weight is the capacity of this member, in proportion to which it gets pieces: from 1 to MaxWeight.
	// 0 means 1.
	Weight int
}

// MaxWeight is the largest Options.Weight.
const MaxWeight = 1 << 20

// Elements of the Tag.
const (
	tagCommits = iota // number of commits
	tagAttempt        // identifies the attempt of the last one
)

// Tags of messages. They are far from the tags that programs use.
const (
	messageMove      = collective.MaxTag - 1
	messageReplicate = collective.MaxTag - 2
)

// Parts is the part of the pieces that one member holds. It belongs to the goroutine of the loop.
type Parts[T collective.Number] struct {
	lengths []int
	options Options
	tag     []uint64 // the version that the members have committed, as part of the common state

	turn    *elastic.Turn    // of the last Settle
	comm    *collective.Comm // the communicator for which pieces are placed; nil after an error
	leaving []int            // ranks that leave, when the pieces were placed
	attempt uint64           // the attempt in version
	holders [][]int          // by piece, the ranks of the owner and of the copies
	lost    []int            // pieces that were lost since the last commit

	pieces    []piece[T]
	committed version // of the values
	staged    version // of the next values; zero unless all are complete
	stats     Stats
}

// piece is the memory of a piece at a member.
type piece[T collective.Number] struct {
	held    bool
	owned   bool // this member was the owner when the pieces were placed last
	void    bool // lost, and not committed since
	touched bool // next was written in this attempt
	value   []T
	next    []T // nil before the first use
}

// version identifies values: the number of commits, and the attempt of the last one.
type version struct{ commits, attempt uint64 }

// Stats counts what a member has done.
type Stats struct {
	Held   int // pieces in memory
	Owned  int // pieces of which this member is the owner
	Placed int // how often the pieces were placed
	Moved  int // elements that this member sent because members changed
	Copied int // elements that this member sent to copies
	Late   int // commits that this member missed, and whose staged values it took
}

// New returns pieces with the given numbers of elements, the same at all members. It panics if a
// length, Copies or Weight is negative, and if Weight is above MaxWeight. The slice is copied.
func New[T collective.Number](lengths []int, o Options) *Parts[T] {
	if len(lengths) > 0 && slices.Min(lengths) < 0 || o.Copies < 0 || o.Weight < 0 || o.Weight > MaxWeight {
		panic(fmt.Sprintf("parts: New with a negative length, or Copies %d or Weight %d out of range", o.Copies, o.Weight))
	}
	o.Weight = max(o.Weight, 1)
	return &Parts[T]{lengths: slices.Clone(lengths), options: o, tag: make([]uint64, 2), pieces: make([]piece[T], len(lengths))}
}

// Tag returns a vector of two numbers that belongs into the common state, as in
// elastic.Vectors(&step, w, p.Tag()). Only Commit and the group write it.
func (p *Parts[T]) Tag() []uint64 { return p.tag }

// Len returns the number of pieces.
func (p *Parts[T]) Len() int { return len(p.lengths) }

// Stats returns what this member has done since New.
func (p *Parts[T]) Stats() Stats {
	s := p.stats
	for k, q := range p.pieces {
		if q.held {
			s.Held++
		}
		if p.owns(k) {
			s.Owned++
		}
	}
	return s
}

// Holders returns the ranks that hold a piece since Settle: the owner, then the copies. The slice
// belongs to p.
func (p *Parts[T]) Holders(k int) []int { return p.holders[k] }

// owns reports whether this member is the owner of a piece.
func (p *Parts[T]) owns(k int) bool {
	return p.comm != nil && p.holders[k][0] == p.comm.Rank()
}

// Own returns the pieces of which this member is the owner, with their committed values, in ascending
// order.
func (p *Parts[T]) Own() iter.Seq2[int, []T] {
	return func(yield func(int, []T) bool) {
		for k := range p.pieces {
			if p.owns(k) && !yield(k, p.pieces[k].value) {
				return
			}
		}
	}
}

// Value returns the committed value of a piece, or nil if this member does not hold the piece. Its
// memory is that of the value until Commit. The owner of a lost piece may write it.
func (p *Parts[T]) Value(k int) []T {
	if !p.pieces[k].held {
		return nil
	}
	return p.pieces[k].value
}

// Next returns the memory for the next value of a piece. In the first call of an attempt it is a copy
// of the value. A piece without a call of Next keeps its value. The memory is that of the next value
// until Replicate. Next panics if this member is not the owner.
func (p *Parts[T]) Next(k int) []T {
	if !p.owns(k) {
		panic(fmt.Sprintf("parts: Next(%d) at a member that is not the owner", k))
	}
	q := &p.pieces[k]
	if !q.touched {
		q.touched = true
		copy(p.nextOf(k), q.value)
	}
	return q.next
}

// nextOf returns the memory for the next value of a piece that this member holds.
func (p *Parts[T]) nextOf(k int) []T {
	q := &p.pieces[k]
	if q.next == nil {
		q.next = make([]T, p.lengths[k])
	}
	return q.next
}

// Settle places the pieces on the members of the turn, and moves those that have to move. All members
// call it first in each turn. While the members stay it makes no calls. Otherwise it costs an
// AllGather of two bits for each piece, a message for each pair of members between which pieces move,
// and a Barrier.
//
// lost are the pieces that no member holds, the same at all members and in ascending order: at the
// start, and after a resume, all. They are zero. If the turn fails, the next Settle returns them again.
//
// After an error the body continues the loop. Nothing is lost by a move that failed, as each member
// keeps what it held until all have what they need. Peers whose pieces differ get an error that ends
// the loop.
func (p *Parts[T]) Settle(ctx context.Context, t *elastic.Turn) (lost []int, err error) {
	leaving := t.Leaving()
	p.turn = t
	if t.Comm == p.comm && slices.Equal(leaving, p.leaving) {
		return p.lost, nil
	}
	p.comm = nil
	p.level()
	c := t.Comm.With(collective.CallOptions{For: "pieces"})
	s, err := p.gather(ctx, c, t, leaving)
	if err != nil {
		return nil, fmt.Errorf("parts: gather what members hold: %w", err)
	}
	holders := s.place(p.options.Copies)
	p.lost = s.vacant()
	if err := p.move(ctx, c, s, holders); err != nil {
		return nil, fmt.Errorf("parts: move pieces: %w", err)
	}
	// No member drops a piece before all have received theirs.
	if err := collective.Barrier(ctx, c); err != nil {
		return nil, fmt.Errorf("parts: end the moves: %w", err)
	}
	for _, k := range p.lost {
		if slices.Contains(holders[k], t.Rank) {
			p.pieces[k] = piece[T]{held: true, void: true, value: make([]T, p.lengths[k])}
		}
	}
	for k := range p.pieces {
		if !slices.Contains(holders[k], t.Rank) {
			p.pieces[k] = piece[T]{}
		}
		p.pieces[k].owned = holders[k][0] == t.Rank
	}
	hash := t.View().Hash()
	p.comm, p.holders, p.leaving, p.attempt = t.Comm, holders, slices.Clone(leaving), binary.LittleEndian.Uint64(hash[:])
	p.stats.Placed++
	return p.lost, nil
}

// level brings the values to the version of the common state: if this member missed a commit, it takes
// the staged values, and if its values are of another history, it drops them.
func (p *Parts[T]) level() {
	switch now := (version{p.tag[tagCommits], p.tag[tagAttempt]}); now {
	case p.committed:
	case p.staged:
		p.advance()
		p.stats.Late++
	default:
		clear(p.pieces)
		p.committed = now
	}
	p.staged = version{}
	for k := range p.pieces {
		p.pieces[k].touched = false
	}
}

// advance makes the staged values the values.
func (p *Parts[T]) advance() {
	for k := range p.pieces {
		if q := &p.pieces[k]; q.held {
			q.value, q.next = q.next, q.value
			q.void, q.touched = false, false
		}
	}
	p.committed, p.staged, p.lost = p.staged, version{}, nil
}

// gather returns what all members hold. Members whose pieces differ end their loops.
func (p *Parts[T]) gather(ctx context.Context, c *collective.Comm, t *elastic.Turn, leaving []int) (*holdings, error) {
	n, mine := c.Size(), make([]uint64, wordBits+(2*len(p.pieces)+63)/64)
	mine[wordShape], mine[wordWeight] = p.shape(), uint64(p.options.Weight)
	for k, q := range p.pieces {
		if q.held && !q.void {
			mine[wordBits+2*k/64] |= 1 << (2 * k % 64)
		}
		if q.held && !q.void && q.owned {
			mine[wordBits+2*k/64] |= 2 << (2 * k % 64)
		}
	}
	all := make([]uint64, n*len(mine))
	if err := collective.AllGather(ctx, c, all, mine); err != nil {
		return nil, err
	}
	s := newHoldings(len(p.pieces), t.View().Hosts())
	for rank := range n {
		words := all[rank*len(mine) : (rank+1)*len(mine)]
		if words[wordShape] != mine[wordShape] {
			err := fmt.Errorf("%s has other pieces or copies than this peer: start all peers with the same flags and data", t.View().Members[rank].ID.Short())
			t.Fail(err)
			return nil, err
		}
		s.read(rank, words)
	}
	s.leave(leaving)
	return s, nil
}

// newHoldings returns the holdings of members that have nothing.
func newHoldings(pieces int, hosts []int) *holdings {
	return &holdings{holders: make([][]int, pieces), owner: slices.Repeat([]int{-1}, pieces), weights: make([]int, len(hosts)), hosts: hosts}
}

// shape returns a hash of what must be equal at all members.
func (p *Parts[T]) shape() uint64 {
	h := fnv.New64a()
	for _, n := range append([]int{p.options.Copies}, p.lengths...) {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) // never fails
	}
	return h.Sum64()
}

// move sends pieces to their new holders. What has arrived is held at once, also if another message
// failed: its sender may drop it as soon as all members have entered the Barrier.
func (p *Parts[T]) move(ctx context.Context, c *collective.Comm, s *holdings, holders [][]int) error {
	sent := make([]int, c.Size()) // elements by rank
	e := exchange[T]{parts: p, comm: c, tag: messageMove, out: make([][]int, c.Size()), in: make([][]int, c.Size())}
	for k, to := range holders {
		for _, r := range to {
			if len(s.holders[k]) == 0 || slices.Contains(s.holders[k], r) {
				continue
			}
			from := slices.MinFunc(s.holders[k], func(a, b int) int { return sent[a] - sent[b] })
			sent[from] += p.lengths[k]
			e.add(from, r, k)
		}
	}
	moved, err := e.run(ctx, func(k int) []T { return p.pieces[k].value }, func(k int, v []T) {
		p.pieces[k] = piece[T]{held: true, value: v}
	})
	p.stats.Moved += moved
	return err
}

// Replicate sends the next values of the pieces that this member owns to their copies. All members
// call it in each turn, after the last Next and before the last collective call of the step. It sends
// one message to each member that holds copies of this member's pieces; without copies it makes no
// call. After an error the body continues the loop.
func (p *Parts[T]) Replicate(ctx context.Context) error {
	if p.comm == nil {
		return p.mistake("Replicate without a Settle that returned nil")
	}
	c := p.comm.With(collective.CallOptions{For: "copies of pieces"})
	e := exchange[T]{parts: p, comm: c, tag: messageReplicate, out: make([][]int, c.Size()), in: make([][]int, c.Size())}
	for k, h := range p.holders {
		if p.owns(k) {
			p.Next(k)
		}
		for _, r := range h[1:] {
			e.add(h[0], r, k)
		}
	}
	copied, err := e.run(ctx, func(k int) []T { return p.pieces[k].next }, func(k int, v []T) { p.pieces[k].next = v })
	p.stats.Copied += copied
	if err != nil {
		return fmt.Errorf("parts: send copies: %w", err)
	}
	p.staged = version{p.tag[tagCommits] + 1, p.attempt}
	return nil
}

// Commit makes the next values the values. The body calls it once when the last collective call of the
// step has returned nil, together with the commit of the common state. No call may fail in between.
func (p *Parts[T]) Commit() {
	if p.staged != (version{p.tag[tagCommits] + 1, p.attempt}) {
		_ = p.mistake("Commit without a Replicate that returned nil in this turn")
		return
	}
	p.advance()
	p.tag[tagCommits], p.tag[tagAttempt] = p.committed.commits, p.committed.attempt
}

// mistake ends the loop at this member because of a mistake of the program.
func (p *Parts[T]) mistake(what string) error {
	err := errors.New("parts: " + what)
	if p.turn != nil {
		p.turn.Fail(err)
	}
	return err
}

// exchange sends pieces between members, in one message for each pair. A message has the pieces one
// after the other, in the order of add.
type exchange[T collective.Number] struct {
	parts   *Parts[T]
	comm    *collective.Comm
	tag     int
	out, in [][]int // by rank, the pieces that go to it and come from it
}

// add lets a piece go from one rank to another. All ranks add the same.
func (e *exchange[T]) add(from, to, k int) {
	switch e.comm.Rank() {
	case from:
		e.out[to] = append(e.out[to], k)
	case to:
		e.in[from] = append(e.in[from], k)
	}
}

// size returns the number of elements of pieces.
func (e *exchange[T]) size(pieces []int) (n int) {
	for _, k := range pieces {
		n += e.parts.lengths[k]
	}
	return n
}

// run sends what source returns for a piece, and calls arrived with memory of its own for each piece
// that has come, also if another message has failed. It returns the number of elements sent.
func (e *exchange[T]) run(ctx context.Context, source func(k int) []T, arrived func(k int, v []T)) (sent int, err error) {
	var handles []*collective.Handle
	buffers, receives := make([][]T, len(e.in)), make([]*collective.Handle, len(e.in))
	for rank, pieces := range e.in {
		buffers[rank] = make([]T, e.size(pieces))
		if len(buffers[rank]) > 0 {
			receives[rank] = collective.IRecv(ctx, e.comm, rank, e.tag, buffers[rank])
			handles = append(handles, receives[rank])
		}
	}
	for rank, pieces := range e.out {
		var packed []T
		for _, k := range pieces {
			packed = append(packed, source(k)...)
		}
		sent += len(packed)
		if len(packed) > 0 {
			handles = append(handles, collective.ISend(ctx, e.comm, rank, e.tag, packed))
		}
	}
	for _, h := range handles {
		err = errors.Join(err, h.Wait(ctx))
	}
	for rank, pieces := range e.in {
		if receives[rank] != nil && receives[rank].Wait(ctx) != nil {
			continue
		}
		for _, k := range pieces {
			n := e.parts.lengths[k]
			arrived(k, slices.Clone(buffers[rank][:n]))
			buffers[rank] = buffers[rank][n:]
		}
	}
	return sent, err
}
