package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// How the ranks of one host come to share memory, when all lines are there:
//
//  1. Each finds in the offers who is on its host: the group, in the order of ranks. All
//     find the same.
//  2. The first of the group makes the memory. Each other one tells it whom of the group it
//     has reached by a Unix socket, which proves that they are on one host, and gives it
//     the files of its event (eventfd) and its arena.
//  3. The first gives everybody all files; each maps them and says whether it could.
//  4. The first gives the verdict. If anything failed, or took longer than shareTime, that
//     is bad news, and all of the group do without.
//
// The first alone keeps the time: would others, too, some could share and some not. A rank
// that cannot know the verdict breaks its line to the first, or that is broken already, and
// a broken line revokes the session as soon as that has begun.

// shareTime is how long the first rank waits for the others, which may still be trying to
// reach ranks elsewhere. A peer that dies breaks its line at once.
const shareTime = time.Minute

// sharing is the group of a host as one of its ranks sees it.
type sharing struct {
	m        *Mesh
	view     elastic.View
	ranks    []int         // by place
	place    int           // of this rank
	conns    []line        // by place; nil where there is no Unix socket, and at place
	patience time.Duration // of the first rank

	bell    *shm.Event // of this rank
	parts   []part     // by place
	memory  *shm.Memory
	segment *shm.Segment
	vigil   *shm.DeathWatch // nil before keepVigil

	mu      sync.Mutex
	hurried bool
}

// line is a Unix socket between two ranks of the group.
type line interface {
	Stream
	FilePasser
}

// part is what a rank brings, as it is at this one.
type part struct {
	bell, arena *os.File // as they came, until they are used
	rope        *shm.Waker
	bytes       []byte     // of the arena; nil where there is none
	user        elastic.ID // whose arena is in use, or ""
}

// passing marks why memory is not shared where that may be otherwise the next time: a line
// broke, or nothing came in time.
type passing struct{ error }

// Unwrap returns the error itself.
func (p passing) Unwrap() error { return p.error }

// share lets this rank share memory with the others of its host, if that can be done; if
// not, the error is the reason, or nil where there is nobody to share with.
func (m *Mesh) share(ctx context.Context, a *attempt) (*sharing, error) {
	s, err := m.group(a)
	if s == nil {
		return nil, err
	}
	if err := s.conclude(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// conclude agrees with the others. The end of ctx, or of the host, is the end of that.
func (s *sharing) conclude(ctx context.Context) error {
	stops := []func() bool{context.AfterFunc(ctx, s.hurry), context.AfterFunc(s.m.life, s.hurry)}
	err := s.agree()
	for _, stop := range stops {
		stop()
	}
	s.limit(time.Time{})
	if err != nil {
		err = errors.Join(err, s.release())
	}
	return err
}

// group finds who is on this rank's host.
func (m *Mesh) group(a *attempt) (*sharing, error) {
	if !m.cfg.Path.sharesMemory() || m.cfg.Site == [32]byte{} {
		return nil, nil
	}
	s := &sharing{m: m, view: a.view, patience: shareTime}
	for rank := range a.streams {
		l := &a.streams[rank][dataStream]
		switch {
		case rank == a.self:
			s.place = len(s.ranks)
		case l.site != m.cfg.Site:
			continue
		case !l.wants.sharesMemory():
			return nil, fmt.Errorf("rank %d does not want to share memory", rank)
		}
		s.ranks = append(s.ranks, rank)
		var c line // nil for this rank, too
		if l.lane != nil {
			c, _ = l.raw.(line)
		}
		s.conns = append(s.conns, c)
	}
	switch n := len(s.ranks); {
	case n == 1:
		return nil, nil
	case n > shm.MaxRanks:
		return nil, fmt.Errorf("%d ranks on one host, shared memory is for %d", n, shm.MaxRanks)
	}
	s.parts = make([]part, len(s.ranks))
	return s, nil
}

// hurry ends all waiting, for good.
func (s *sharing) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = true
	s.deadline(time.Unix(1, 0))
}

// limit sets until when to wait, unless there is no time at all any more.
func (s *sharing) limit(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hurried {
		s.deadline(t)
	}
}

func (s *sharing) deadline(t time.Time) {
	for _, c := range s.conns {
		if c != nil {
			_ = setDeadline(c, t)
		}
	}
}

// reached returns a bit for each place that this rank can send files to, itself included.
func (s *sharing) reached() uint64 {
	mask := uint64(1) << s.place
	for place, c := range s.conns {
		if c != nil {
			mask |= 1 << place
		}
	}
	return mask
}

// checkReached returns an error if a rank does not reach all others.
func (s *sharing) checkReached(rank int, mask uint64) error {
	if n := len(s.ranks); mask != uint64(1)<<n-1 {
		return fmt.Errorf("rank %d reaches %d of %d ranks of its host by Unix sockets", rank, bits.OnesCount64(mask), n)
	}
	return nil
}

// agree maps the memory as all others of the group do.
func (s *sharing) agree() error {
	var err error
	if s.bell, err = shm.NewEvent(); err != nil {
		err = fmt.Errorf("rank %d: %w", s.ranks[s.place], err)
	}
	if s.place > 0 {
		return s.follow(err)
	}
	if err == nil {
		s.limit(time.Now().Add(s.patience))
		err = s.lead()
	}
	s.tell(err)
	return err
}

// tell gives the others the verdict. It fits into the buffers of the sockets; who does not
// get it has lost this rank.
func (s *sharing) tell(err error) {
	m := shareMessage{step: stepVerdict}
	if err != nil {
		m.why = err.Error()
	}
	if errors.As(err, new(passing)) {
		m.mask = 1
	}
	for _, c := range s.conns {
		if c != nil {
			_ = c.SetWriteDeadline(time.Now().Add(s.patience)) // the time for all else may be over
			_ = sendShare(c, m)
		}
	}
}

// verdict is what tell has told.
func verdict(m shareMessage) error {
	switch {
	case m.why == "":
		return nil
	case m.mask != 0:
		return passing{errors.New(m.why)}
	}
	return errors.New(m.why)
}

// lead is the part of the first rank, up to the verdict.
func (s *sharing) lead() error {
	if err := s.checkReached(s.ranks[0], s.reached()); err != nil {
		return err
	}
	var err error
	if s.memory, err = shm.NewMemory(shm.Size(len(s.ranks))); err != nil { // takes milliseconds, as others get ready
		return fmt.Errorf("rank %d: %w", s.ranks[0], err)
	}
	if err := s.collect(stepReady, s.takeReady); err != nil {
		return err
	}
	m, files := s.offer()
	for place, c := range s.conns[1:] {
		if err := sendShare(c, m, files...); err != nil {
			return passing{fmt.Errorf("rank %d: %w", s.ranks[place+1], err)}
		}
	}
	if err := s.attach(m.mask); err != nil {
		return fmt.Errorf("rank %d: %w", s.ranks[0], err)
	}
	return s.collect(stepAck, func(_ int, _ shareMessage, files []*os.File) error {
		closeFiles(files)
		return nil
	})
}

// collect receives a message of that step from all others, and has it taken in, along with
// its files.
func (s *sharing) collect(step byte, take func(place int, m shareMessage, files []*os.File) error) error {
	for place, c := range s.conns[1:] {
		m, files, err := receiveShare(c)
		switch {
		case err != nil:
			err = passing{fmt.Errorf("rank %d: %w", s.ranks[place+1], err)}
		case m.why != "":
			closeFiles(files)
			err = errors.New(m.why)
		case m.step != step:
			closeFiles(files)
			err = fmt.Errorf("rank %d: step %d, not %d: %w", s.ranks[place+1], m.step, step, errProtocol)
		default:
			err = take(place+1, m, files)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeReady takes in what a rank brings.
func (s *sharing) takeReady(place int, m shareMessage, files []*os.File) error {
	rank := s.ranks[place]
	switch {
	case m.layout != shm.Layout:
		closeFiles(files)
		return fmt.Errorf("rank %d lays out shared memory in another way (%d, not %d)", rank, m.layout, shm.Layout)
	case len(files) != 1 && len(files) != 2:
		closeFiles(files)
		return fmt.Errorf("rank %d: %d files: %w", rank, len(files), errProtocol)
	}
	s.parts[place].bell = files[0]
	if len(files) == 2 {
		s.parts[place].arena = files[1]
	}
	return s.checkReached(rank, m.mask)
}

// offer returns what the first rank gives the others: the memory, the bells of all, and
// the arenas of those in the mask.
func (s *sharing) offer() (shareMessage, []*os.File) {
	m := shareMessage{step: stepOffer}
	bells, arenas := []*os.File{s.bell.File()}, []*os.File(nil)
	if own := s.m.arenas.mine(s.m.id); own != nil {
		m.mask, arenas = 1, append(arenas, own.File())
	}
	for place := range s.parts[1:] {
		p := &s.parts[place+1]
		bells = append(bells, p.bell)
		if p.arena != nil {
			m.mask |= 1 << (place + 1)
			arenas = append(arenas, p.arena)
		}
	}
	return m, append(append([]*os.File{s.memory.File()}, bells...), arenas...)
}

// follow is the part of all ranks but the first. failed is why this one cannot take part.
func (s *sharing) follow(failed error) error {
	first := s.conns[0]
	if first == nil {
		return fmt.Errorf("rank %d, the first of this host, was not reached by a Unix socket", s.ranks[0])
	}
	m, err := s.answer(first, failed)
	if err != nil {
		_ = first.Reset() // as others may share memory with this rank
		return passing{fmt.Errorf("rank %d: %w", s.ranks[0], err)}
	}
	return verdict(m)
}

// answer speaks with the first rank up to its verdict.
func (s *sharing) answer(first line, failed error) (shareMessage, error) {
	ready := shareMessage{step: stepReady, mask: s.reached(), layout: shm.Layout}
	var files []*os.File
	if failed != nil {
		ready.why = failed.Error()
	} else {
		files = append(files, s.bell.File())
		if own := s.m.arenas.mine(s.m.id); own != nil {
			files = append(files, own.File())
		}
	}
	if err := sendShare(first, ready, files...); err != nil {
		return shareMessage{}, err
	}
	m, came, err := receiveShare(first)
	if err == nil && m.step == stepOffer {
		ack := shareMessage{step: stepAck}
		if err := s.takeOffer(m, came); err != nil {
			ack.why = fmt.Sprintf("rank %d: %v", s.ranks[s.place], err)
		}
		if err := sendShare(first, ack); err != nil {
			return shareMessage{}, err
		}
		m, came, err = receiveShare(first)
	}
	closeFiles(came)
	switch {
	case err != nil:
		return shareMessage{}, err
	case m.step != stepVerdict:
		return shareMessage{}, fmt.Errorf("step %d: %w", m.step, errProtocol)
	case m.why == "" && s.segment == nil:
		return shareMessage{}, fmt.Errorf("a verdict for what this rank has not mapped: %w", errProtocol)
	}
	return m, nil
}

// takeOffer maps what the first rank offers, and takes over the files.
func (s *sharing) takeOffer(m shareMessage, came []*os.File) error {
	n := len(s.ranks)
	if len(came) != 1+n+bits.OnesCount64(m.mask) || bits.Len64(m.mask) > n {
		closeFiles(came)
		return fmt.Errorf("%d files for %b: %w", len(came), m.mask, errProtocol)
	}
	arenas := came[1+n:]
	for place := range s.parts {
		p := &s.parts[place]
		p.bell = came[1+place]
		if m.mask&(1<<place) != 0 {
			p.arena, arenas = arenas[0], arenas[1:]
		}
	}
	var err error
	if s.memory, err = shm.Open(came[0]); err != nil {
		return err
	}
	return s.attach(m.mask)
}

// attach makes the segment over what the ranks have brought, with the arenas of those in
// the mask.
func (s *sharing) attach(mask uint64) error {
	n := len(s.ranks)
	arenas, ropes := make([][]byte, n), make([]*shm.Waker, n)
	for place := range s.parts {
		p := &s.parts[place]
		if err := s.use(place, mask&(1<<place) != 0); err != nil {
			return fmt.Errorf("what rank %d brings: %w", s.ranks[place], err)
		}
		arenas[place], ropes[place] = p.bytes, p.rope
	}
	if len(s.memory.Bytes()) != shm.Size(n) {
		return fmt.Errorf("%d bytes of memory, want %d", len(s.memory.Bytes()), shm.Size(n))
	}
	var err error
	if s.segment, err = shm.Attach(s.memory.Bytes(), arenas, n, s.place); err != nil {
		return err
	}
	s.segment.UseEvents(s.bell, ropes)
	return nil
}

// use makes use of the files of a place. Of its own this rank has got second handles.
func (s *sharing) use(place int, withArena bool) error {
	p := &s.parts[place]
	bell, arena := p.bell, p.arena
	p.bell, p.arena = nil, nil
	var err error
	if place == s.place {
		closeFiles([]*os.File{bell, arena})
		arena = nil
	} else if p.rope, err = shm.OpenWaker(bell); err != nil {
		closeFiles([]*os.File{arena})
		return err
	}
	if !withArena {
		return nil
	}
	id := s.view.Members[s.ranks[place]].ID
	if p.bytes, err = s.m.arenas.use(id, arena); err == nil {
		p.user = id
	}
	return err
}

// copied returns why calls with another rank copy vectors though it shares memory with this
// one; "" if they need not. Why there is no arena only the rank knows that lacks it.
func (s *sharing) copied(rank int) string {
	const format = "calls with rank %d copy vectors, as it has no arena"
	if s.own() == nil {
		return fmt.Sprintf(format+": %v", s.ranks[s.place], s.m.arenas.lack())
	}
	if s.parts[slices.Index(s.ranks, rank)].user == "" {
		return fmt.Sprintf(format, rank)
	}
	return ""
}

// keepVigil calls died with the rank of each process of the group that dies.
func (s *sharing) keepVigil(died func(rank int)) {
	s.vigil = s.segment.WatchDeaths(func(place int) { died(s.ranks[place]) })
}

// release gives everything back. Nothing may use it any more.
func (s *sharing) release() error {
	var errs []error
	if s.vigil != nil {
		s.vigil.Close()
	}
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
	}
	for _, p := range s.parts {
		closeFiles([]*os.File{p.bell, p.arena})
		if p.rope != nil {
			errs = append(errs, p.rope.Close())
		}
		if p.user != "" {
			errs = append(errs, s.m.arenas.drop(p.user))
		}
	}
	if s.bell != nil {
		errs = append(errs, s.bell.Close())
	}
	return errors.Join(errs...)
}

// shared is what a communicator gets of it; cause is that of its transport.
func (s *sharing) shared(cause func() error) *transport.Shared {
	return &transport.Shared{Memory: &shm.Attached{Segment: s.segment, Arena: s.own()}, Ranks: s.ranks, Cause: cause,
		Release: sync.OnceValue(s.release)}
}

// own returns this rank's arena, if it is in use.
func (s *sharing) own() *shm.Arena {
	if s.parts[s.place].user == "" {
		return nil
	}
	return s.m.arenas.mine(s.m.id)
}
