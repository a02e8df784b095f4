package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// How the ranks of one host agree to share memory, when all planned streams are there:
//
//  1. Each rank finds in the hellos which ranks are on its host: the group, in the order of ranks.
//     All find the same group. A rank has no hello from ranks with which it has no lanes; for these
//     it relies on the view. The first rank of the group has lanes with all others, so it notices
//     if the view is wrong.
//  2. The first rank makes the memory. Each other rank is connected with the first rank by a Unix
//     socket, which proves that both are on one host. It sends the first rank the files of its
//     event (eventfd) and its arena, and a list of the ranks whose files it has from earlier views.
//  3. The first rank sends each other rank the memory, and the files that the other rank lacks. The
//     other rank maps them, and answers whether that has succeeded.
//  4. The first rank sends the result. If anything failed, or took longer than shareTime, the result
//     is the reason, and no rank of the group shares memory.
//
// Only the first rank has a time limit. If others had a time limit, too, some ranks could share
// memory and others not. A rank that does not receive the result resets its socket to the first
// rank, unless that socket is broken already. A broken socket revokes the session as soon as the
// session has begun.
//
// The memory is new in each view (spare.go); a process sends its files once (hostprocesses.go).

// All ranks of the group must come to the same result: if one rank reduced through memory and
// another rank by messages, both would wait for ever. So the first rank decides for all. A rank
// that does not receive the result resets its socket, so that no rank can use the view. This is a
// two-phase commit, but where the coordinator is lost the ranks give up the view and do not block.

// shareTime is how long the first rank waits for the others, which may still be connecting to
// ranks of other hosts. If a peer dies its socket breaks at once, which ends the wait.
const shareTime = time.Minute

// shmGroup is the group of a host as one of its ranks sees it, for one view. Until negotiate has
// returned, its goroutine owns all fields, except for aborted, which mu guards. After that the
// transport owns the segment. release is called when neither the transport nor its user needs the
// segment.
type shmGroup struct {
	// host is the part of this process that all its groups share.
	host *hostMemory
	view elastic.View
	// ranks are the ranks of the group. A local rank is an index into ranks.
	ranks []int
	// localRank is the local rank of this process.
	localRank int
	conns     []unixStream  // by local rank: at the first rank to all others; at others to the first only
	timeout   time.Duration // how long the first rank waits

	sparse bool // not all ranks of the group have lanes with each other
	// disabled is set if a rank does not want to share memory. Only ranks that have lanes with that
	// rank know this, from its hello.
	disabled error

	processes []*hostProcess // by local rank; nil until hostProcesses.acquire or add has returned it
	// knownFiles is used at the first rank. For each local rank it has a mask of the local ranks
	// whose files that rank has already.
	knownFiles []uint64
	memory     *shm.Memory
	segment    *shm.Segment
	deathWatch *shm.DeathWatch // nil before watchDeaths

	// mu guards the fields below.
	mu      sync.Mutex
	aborted bool
}

// unixStream is the stream over a Unix socket between two ranks of the group.
type unixStream interface {
	Stream
	FilePasser
}

// transientError marks an error that does not exclude shared memory in the next view: a socket
// broke, or no message came in time.
type transientError struct{ error }

// Unwrap returns the error itself.
func (t transientError) Unwrap() error { return t.error }

// negotiate agrees with the other ranks by exchange. It fails when ctx ends or the mesh closes.
func (s *shmGroup) negotiate(ctx context.Context) error {
	// The exchange blocks in sockets without a context: abort makes these calls fail.
	stops := []func() bool{context.AfterFunc(ctx, s.abort), context.AfterFunc(s.host.life.ctx, s.abort)}
	err := s.exchange()
	for _, stop := range stops {
		stop()
	}
	s.limit(time.Time{})
	if err != nil {
		err = errors.Join(err, s.release())
	}
	return err
}

// abort ends the agreement: all pending and later waits on the sockets fail.
func (s *shmGroup) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = true
	s.deadline(time.Unix(1, 0))
}

// limit sets the deadline of the sockets, unless abort was called.
func (s *shmGroup) limit(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.aborted {
		s.deadline(t)
	}
}

func (s *shmGroup) deadline(t time.Time) {
	for _, c := range s.conns {
		if c != nil {
			_ = setDeadline(c, t)
		}
	}
}

// exchange makes the agreement, and maps the memory. After an error no rank of the group shares
// memory.
func (s *shmGroup) exchange() error {
	own, err := s.host.processes.own()
	if err == nil {
		s.processes[s.localRank] = own
	} else {
		// A rank with an error still sends messages: otherwise the other ranks would wait for it,
		// and would not get the error.
		err = fmt.Errorf("rank %d: %w", s.ranks[s.localRank], err)
	}
	if s.localRank > 0 {
		return s.follow(err)
	}
	if err == nil {
		s.limit(time.Now().Add(s.timeout))
		err = s.lead()
	}
	s.sendResult(err)
	return err
}

// sendResult sends the result to the other ranks. The result fits into the buffers of the sockets,
// so the writes do not block. A rank that the result does not reach has lost its socket to this
// rank.
func (s *shmGroup) sendResult(err error) {
	m := shareMessage{kind: kindResult}
	if err != nil {
		m.why = err.Error()
	}
	if errors.As(err, new(transientError)) {
		m.mask = 1
	}
	for _, c := range s.conns {
		if c != nil {
			_ = c.SetWriteDeadline(time.Now().Add(s.timeout)) // the earlier deadline may have passed
			_ = sendShare(c, m)
		}
	}
}

// resultError returns the error that sendResult has sent in m.
func resultError(m shareMessage) error {
	switch {
	case m.why == "":
		return nil
	case m.mask != 0:
		return transientError{errors.New(m.why)}
	}
	return errors.New(m.why)
}

// lead does the part of the first rank, up to the result.
func (s *shmGroup) lead() error {
	if s.disabled != nil {
		return s.disabled
	}
	if err := s.checkReached(); err != nil {
		return err
	}
	var err error
	if s.memory, err = s.host.spare.take(shm.Size(len(s.ranks))); err != nil {
		return fmt.Errorf("rank %d: %w", s.ranks[0], err)
	}
	if err := s.collect(kindReady, s.onReady); err != nil {
		return err
	}
	if err := s.sendOffer(); err != nil {
		return err
	}
	if err := s.attach(); err != nil {
		return fmt.Errorf("rank %d: %w", s.ranks[0], err)
	}
	return s.collect(kindAck, func(_ int, _ shareMessage, files []*os.File) error {
		closeFiles(files)
		return nil
	})
}

// checkReached returns an error if the first rank is not connected with all others by Unix sockets.
func (s *shmGroup) checkReached() error {
	for place, c := range s.conns[1:] {
		if c == nil {
			return fmt.Errorf("rank %d, the first of this host, has no Unix socket to rank %d", s.ranks[0], s.ranks[place+1])
		}
	}
	return nil
}

// collect receives one message of the given kind from each other rank, and calls take with the
// message and its files.
func (s *shmGroup) collect(kind byte, take func(place int, m shareMessage, files []*os.File) error) error {
	for place, c := range s.conns[1:] {
		m, files, err := receiveShare(c)
		switch {
		case err != nil:
			err = transientError{fmt.Errorf("rank %d: %w", s.ranks[place+1], err)}
		case m.why != "":
			closeFiles(files)
			err = errors.New(m.why)
		case m.kind != kind:
			closeFiles(files)
			err = fmt.Errorf("rank %d: message %d of the agreement on shared memory, want message %d: %w", s.ranks[place+1], m.kind, kind, errProtocol)
		default:
			err = take(place+1, m, files)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// onReady handles the kindReady message of a rank, with the files of its event and its arena.
func (s *shmGroup) onReady(place int, m shareMessage, files []*os.File) error {
	rank := s.ranks[place]
	switch {
	case m.layout != s.layout():
		closeFiles(files)
		return fmt.Errorf("rank %d has another layout of shared memory (%d, not %d): run the same version of elrun at all ranks", rank, m.layout, s.layout())
	case len(files) != 1 && len(files) != 2:
		closeFiles(files)
		return fmt.Errorf("rank %d sent %d files, want 1 or 2: %w", rank, len(files), errProtocol)
	}
	var arena *os.File
	// A rank without an arena sends the event only.
	if len(files) == 2 {
		arena = files[1]
	}
	s.knownFiles[place] = m.mask
	return s.addFiles(place, files[0], arena)
}

// follow does the part of a rank that is not the first. failed is why this rank cannot share
// memory, or nil.
func (s *shmGroup) follow(failed error) error {
	first := s.conns[0]
	if first == nil {
		return fmt.Errorf("no Unix socket to rank %d, the first of this host", s.ranks[0])
	}
	m, err := s.respond(first, failed)
	if err != nil {
		_ = first.Reset() // revokes the session, as other ranks may believe that this rank shares memory
		return transientError{fmt.Errorf("rank %d: %w", s.ranks[0], err)}
	}
	return resultError(m)
}

// respond exchanges messages with the first rank, and returns the message that has the result.
func (s *shmGroup) respond(first unixStream, failed error) (shareMessage, error) {
	ready := shareMessage{kind: kindReady, layout: s.layout()}
	var files []*os.File
	if failed != nil {
		ready.why = failed.Error()
	} else {
		ready.mask = s.holdKnown()
		own := s.processes[s.localRank]
		files = append(files, own.event.File())
		if own.file != nil {
			files = append(files, own.file)
		}
	}
	if err := sendShare(first, ready, files...); err != nil {
		return shareMessage{}, err
	}
	// The result comes in place of the offer if the first rank has failed before.
	m, came, err := receiveShare(first)
	if err == nil && m.kind == kindOffer {
		ack := shareMessage{kind: kindAck}
		if err := s.mapOffer(m, came); err != nil {
			ack.why = fmt.Sprintf("rank %d: %v", s.ranks[s.localRank], err)
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
	case m.kind != kindResult:
		return shareMessage{}, fmt.Errorf("message %d of the agreement on shared memory, want message %d: %w", m.kind, kindResult, errProtocol)
	case m.why == "" && s.segment == nil:
		return shareMessage{}, fmt.Errorf("a result for memory that this rank has not mapped: %w", errProtocol)
	}
	return m, nil
}

// attach makes the segment over the memory and the arenas and events of all ranks.
func (s *shmGroup) attach() error {
	n := len(s.ranks)
	arenas, wakers := make([][]byte, n), make([]*shm.Waker, n)
	for place, p := range s.processes {
		arenas[place], wakers[place] = p.bytes, p.waker
	}
	var err error
	// The arenas are in the order of local ranks, which is the same at all ranks of the host.
	if s.segment, err = s.host.processes.machine().Attach(s.memory.Bytes(), arenas, n, s.localRank); err != nil {
		return err
	}
	s.segment.UseEvents(s.processes[s.localRank].event, wakers)
	return nil
}

// copyReason returns why calls with another rank copy vectors although the two share memory, or ""
// if they do not copy. If the other rank has no arena, only that rank knows the reason.
func (s *shmGroup) copyReason(rank int) string {
	const format = "calls with rank %d copy vectors, as it has no arena"
	if s.processes[s.localRank].arena == nil {
		return fmt.Sprintf(format+": %v", s.ranks[s.localRank], s.host.processes.arenaError())
	}
	if s.processes[slices.Index(s.ranks, rank)].file == nil {
		return fmt.Sprintf(format, rank)
	}
	return ""
}

// watchDeaths starts the death watch, which calls died with the rank of each process of the group
// that dies, unless a launcher reports the deaths of all of them as early. The thread of a death watch
// delays a process that runs Go code on one thread only, by up to 10 ms: it keeps this thread until
// the Go runtime notices that it waits in the kernel.
func (s *shmGroup) watchDeaths(died func(rank int)) {
	if l := s.host.launcher; l != "" && !slices.ContainsFunc(s.ranks, func(rank int) bool { return s.view.Members[rank].Launcher != l }) {
		return
	}
	s.deathWatch = s.segment.WatchDeaths(func(place int) { died(s.ranks[place]) })
}

// release unmaps the memory, ends the death watch, and releases the processes. It is called once,
// when nothing uses the memory any more.
func (s *shmGroup) release() error {
	var errs []error
	if s.deathWatch != nil {
		s.deathWatch.Close()
	}
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
	}
	for place, p := range s.processes {
		if p != nil {
			errs = append(errs, s.host.processes.release(s.view.Members[s.ranks[place]].ID))
		}
	}
	return errors.Join(errs...)
}

// layout returns a number that differs between programs that lay out memory in different ways. In a
// sparse view two ranks may have found different groups, so there the number also differs between
// groups. The first rank compares its number with the numbers of the others before it offers the
// memory.
func (s *shmGroup) layout() uint32 {
	h := uint32(shm.Layout)
	if !s.sparse {
		return h
	}
	for _, rank := range s.ranks {
		h = (h ^ uint32(rank)) * 16777619 // FNV
	}
	return h
}

// shared returns the shared memory for a communicator; cause returns why the transport of the
// communicator has failed.
func (s *shmGroup) shared(cause func() error) *transport.Shared {
	return &transport.Shared{Memory: &shm.Attached{Segment: s.segment, Arena: s.processes[s.localRank].arena}, Words: s.segment, Ranks: s.ranks, Cause: cause,
		Release: sync.OnceValue(s.release)}
}

// The files of an agreement: which files a rank needs, and what each received file is. Files come
// without names, so both sides derive their order from the masks. If a mask does not fit the number
// of files, the agreement fails. Package shm checks each file before it maps the file.

// addFiles takes over the files that a rank has sent.
func (s *shmGroup) addFiles(place int, event, arena *os.File) error {
	rank := s.ranks[place]
	var err error
	if s.processes[place], err = s.host.processes.add(s.view.Members[rank].ID, event, arena); err != nil {
		return fmt.Errorf("files of rank %d: %w", rank, err)
	}
	return nil
}

// sendOffer sends each other rank the memory and the files that the rank lacks. The event of each
// rank is opened once for all messages.
func (s *shmGroup) sendOffer() error {
	m := shareMessage{kind: kindOffer}
	for place, p := range s.processes {
		// The mask tells the receiver which ranks have an arena: descriptors come without names.
		if p.file != nil {
			m.mask |= 1 << place
		}
	}
	events := make([]*os.File, len(s.processes))
	defer func() { closeFiles(events) }()
	// The first rank does not send to itself, so the local rank of c is place+1.
	for place, c := range s.conns[1:] {
		files, err := s.missingFiles(s.knownFiles[place+1], events)
		if err != nil {
			return fmt.Errorf("rank %d: %w", s.ranks[0], err)
		}
		if err := sendShare(c, m, append([]*os.File{s.memory.File()}, files...)...); err != nil {
			// The other rank may have died. The ranks of the next view agree anew.
			return transientError{fmt.Errorf("rank %d: %w", s.ranks[place+1], err)}
		}
	}
	return nil
}

// missingFiles returns the files of the processes whose bit is not set in has: for each process its
// event, and its arena if it has one. events has the event files that are open, by local rank;
// missingFiles adds the files that it opens.
func (s *shmGroup) missingFiles(has uint64, events []*os.File) (files []*os.File, err error) {
	for place, p := range s.processes {
		// The receiver has mapped the memory of this process in an earlier view and still has its
		// files.
		if has&(1<<place) != 0 {
			continue
		}
		if events[place] == nil {
			if events[place], err = p.openEvent(); err != nil {
				return nil, err
			}
		}
		files = append(files, events[place])
		if p.file != nil {
			files = append(files, p.file)
		}
	}
	return files, nil
}

// holdKnown acquires the processes of the group whose files have come in earlier views. It returns
// a mask that has a bit for the local rank of each such process and of this rank.
func (s *shmGroup) holdKnown() uint64 {
	// 64 bits are enough: shm.MaxRanks bounds the group.
	has := uint64(1) << s.localRank
	for place, rank := range s.ranks {
		if place == s.localRank {
			continue
		}
		if s.processes[place] = s.host.processes.acquire(s.view.Members[rank].ID); s.processes[place] != nil {
			has |= 1 << place
		}
	}
	return has
}

// mapOffer maps the memory that the first rank offers, and takes over the files: came has the
// memory, and the files that this rank lacked.
func (s *shmGroup) mapOffer(m shareMessage, came []*os.File) error {
	memory, files, err := s.sortFiles(m.mask, came)
	if err != nil {
		closeFiles(came)
		return err
	}
	// After the first error the remaining files are still closed.
	for place, f := range files {
		switch {
		case f[0] == nil:
		case err == nil:
			err = s.addFiles(place, f[0], f[1])
		default:
			closeFiles(f[:])
		}
	}
	if err != nil {
		return errors.Join(err, memory.Close())
	}
	if s.memory, err = shm.Open(memory); err != nil {
		return err
	}
	return s.attach()
}

// sortFiles assigns the files of an offer: the memory first, then by local rank the event of each
// rank whose files this rank lacked, and its arena if its bit is set in arenas.
func (s *shmGroup) sortFiles(arenas uint64, came []*os.File) (memory *os.File, files [][2]*os.File, err error) {
	next := func() (f *os.File) {
		if len(came) == 0 {
			err = fmt.Errorf("files are missing: %w", errProtocol)
			return nil
		}
		f, came = came[0], came[1:]
		return f
	}
	memory, files = next(), make([][2]*os.File, len(s.processes))
	for place, p := range s.processes {
		has := arenas&(1<<place) != 0
		switch {
		// A process makes its arena once, before its first view: a change is an error of the
		// other side.
		case p != nil && has != (p.file != nil):
			return nil, nil, fmt.Errorf("the arena of rank %d has changed: %w", s.ranks[place], errProtocol)
		case p != nil:
			continue
		}
		files[place][0] = next()
		if has {
			files[place][1] = next()
		}
	}
	if len(came) > 0 {
		err = fmt.Errorf("%d files too many: %w", len(came), errProtocol)
	}
	return memory, files, err
}
