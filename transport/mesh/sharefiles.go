package mesh

import (
	"errors"
	"fmt"
	"os"

	"github.com/elrun/elrun/internal/shm"
)

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
