package transfer

import "sort"

// updateLog holds the updates of successive steps, bounded in bytes. It is not safe
// for concurrent use; what it returns is never changed again.
type updateLog struct {
	max     int64 // bytes of memory
	bytes   int64
	base    int64 // updates up to this step are not there; -1: nothing is known to be missing
	entries []*slabs
}

// newUpdateLog returns an empty log of at most max bytes.
func newUpdateLog(max int64) updateLog { return updateLog{max: max, base: -1} }

// last returns the step of the newest update, or base.
func (l *updateLog) last() int64 { return l.base + int64(len(l.entries)) }

// append adds the update of a step. Where it does not follow the one before, those
// before are of no use any more. The oldest make room for the new one; one that is
// larger than the log is not kept either.
func (l *updateLog) append(step int64, u *slabs) {
	if step != l.last()+1 {
		l.entries, l.bytes, l.base = nil, 0, step-1
	}
	l.entries = append(l.entries, u)
	l.bytes += u.memory()
	for l.bytes > l.max {
		l.dropOldest()
	}
}

// dropOldest forgets one update.
func (l *updateLog) dropOldest() {
	l.bytes -= l.entries[0].memory()
	l.entries[0] = nil
	l.entries = l.entries[1:]
	l.base++
}

// trim forgets the updates up to a step, which nobody wants.
func (l *updateLog) trim(step int64) {
	for len(l.entries) > 0 && l.base < step {
		l.dropOldest()
	}
}

// covers reports whether a peer in the state after a step can be brought to the
// committed step at with what is there. The update of at itself may still be on its
// way: it is put in after the step has been declared committed.
func (l *updateLog) covers(after, at int64) bool {
	return after >= l.base && (after < l.last() || after >= at-1)
}

// after returns the updates after a step, at most count of them and about bytes long,
// but at least one if there is one.
func (l *updateLog) after(step int64, count int, bytes int64) []*slabs {
	from := int(max(0, step-l.base))
	if from >= len(l.entries) {
		return nil
	}
	list := l.entries[from:min(len(l.entries), from+count)]
	var sum int64
	for i, u := range list {
		if sum += u.bytes; sum > bytes && i > 0 {
			return append([]*slabs(nil), list[:i]...)
		}
	}
	return append([]*slabs(nil), list...)
}

// since returns the bytes of the updates after a step.
func (l *updateLog) since(step int64) int64 {
	from := sort.Search(len(l.entries), func(i int) bool { return l.base+int64(i)+1 > step })
	var sum int64
	for _, u := range l.entries[from:] {
		sum += u.bytes
	}
	return sum
}
