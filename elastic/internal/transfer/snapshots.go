package transfer

// phase is the progress of a snapshot.
type phase uint8

const (
	wanted  phase = iota // the owner has not reached its step yet
	writing              // the owner writes the state into it
	ready                // complete
	void                 // saving failed, or the snapshot was dropped meanwhile
)

// snapshot is the state after one step. From the phase ready on data is immutable.
type snapshot struct {
	step     int64
	phase    phase
	data     slabs
	manifest *manifest // nil until data is hashed
}

// snapshots holds the snapshots that newcomers have ordered. It is not safe for concurrent use.
type snapshots struct {
	most  int                 // largest number of snapshots
	chunk int                 // size of the pieces of a snapshot's data, in bytes
	by    map[int64]*snapshot // by step
}

// newSnapshots returns snapshots without any snapshot.
func newSnapshots(most, chunk int) snapshots {
	return snapshots{most: most, chunk: chunk, by: make(map[int64]*snapshot)}
}

// full reports whether no other snapshot can be ordered.
func (s *snapshots) full() bool { return len(s.by) >= s.most }

// order makes a snapshot of a step in the phase wanted, unless the step has a snapshot already.
func (s *snapshots) order(step int64) {
	if s.by[step] != nil {
		return
	}
	s.by[step] = &snapshot{step: step, data: slabs{size: s.chunk}}
}

// wanted returns the snapshot of a step if the owner has to write it, or nil.
func (s *snapshots) wanted(step int64) *snapshot {
	if one := s.by[step]; one != nil && one.phase == wanted {
		return one
	}
	return nil
}

// begun reports whether the owner has begun to write the snapshot of a step.
func (s *snapshots) begun(step int64) bool {
	one := s.by[step]
	return one != nil && one.phase != wanted
}

// trim drops the snapshots whose steps are not needed. It returns the lowest step at which a
// snapshot is wanted, or never.
func (s *snapshots) trim(needed map[int64]bool) int64 {
	next := int64(never)
	for step, one := range s.by {
		if !needed[step] && one.phase != writing || one.phase == void {
			delete(s.by, step)
		} else if one.phase == wanted {
			next = min(next, step)
		}
	}
	return next
}

// miss drops the wanted snapshots of steps before at, and reports whether there were any.
func (s *snapshots) miss(at int64) (missed bool) {
	for step := range s.by {
		if step < at && s.wanted(step) != nil {
			delete(s.by, step)
			missed = true
		}
	}
	return missed
}

// memory returns the bytes of the complete snapshots. The data of the other snapshots may not be
// read, as the owner may be writing it.
func (s *snapshots) memory() (bytes int64) {
	for _, one := range s.by {
		if one.phase == ready {
			bytes += one.data.memory()
		}
	}
	return bytes
}
