package transfer

import (
	"bytes"
	"sort"
)

// updateLog holds the updates of successive steps, bounded in bytes. It is not safe for concurrent
// use. The returned updates are immutable.
type updateLog struct {
	max     int64    // bound of bytes
	bytes   int64    // memory of the updates
	base    int64    // updates up to this step are missing; -1 if no update is known to be missing
	entries []*slabs // updates from base+1 on
}

// newUpdateLog returns an empty log of at most max bytes.
func newUpdateLog(max int64) updateLog { return updateLog{max: max, base: -1} }

// last returns the step of the newest update, or base.
func (u *updateLog) last() int64 { return u.base + int64(len(u.entries)) }

// append appends the update of a step. If the step does not follow the last step the log is cleared
// first, as a gap makes earlier updates useless. The oldest updates are dropped until the others
// fit into max bytes; an update larger than max is not kept.
func (u *updateLog) append(step int64, update *slabs) {
	if step != u.last()+1 {
		u.entries, u.bytes, u.base = nil, 0, step-1
	}
	u.entries = append(u.entries, update)
	u.bytes += update.memory()
	for u.bytes > u.max {
		u.dropOldest()
	}
}

// dropOldest removes the oldest update.
func (u *updateLog) dropOldest() {
	u.bytes -= u.entries[0].memory()
	u.entries[0] = nil
	u.entries = u.entries[1:]
	u.base++
}

// trim removes the updates up to a step, which no newcomer needs.
func (u *updateLog) trim(step int64) {
	for len(u.entries) > 0 && u.base < step {
		u.dropOldest()
	}
}

// covers reports whether the log can bring a peer from one step, given as after, to the committed
// step, given as at. The update of the committed step itself may still be missing: it is appended
// only after the donor has stored the committed step.
func (u *updateLog) covers(after, at int64) bool {
	return after >= u.base && (after < u.last() || after >= at-1)
}

// after returns the updates after a step: at most count of them, which together have about the
// given number of bytes, but at least one if there is any.
func (u *updateLog) after(step int64, count int, bytes int64) []*slabs {
	from := int(max(0, step-u.base))
	if from >= len(u.entries) {
		return nil
	}
	list := u.entries[from:min(len(u.entries), from+count)]
	var sum int64
	for i, update := range list {
		if sum += update.bytes; sum > bytes && i > 0 {
			return append([]*slabs(nil), list[:i]...)
		}
	}
	// The result is a copy: the log drops old entries while the caller sends.
	return append([]*slabs(nil), list...)
}

// since returns the length, in bytes, of the updates after a step.
func (u *updateLog) since(step int64) int64 {
	from := sort.Search(len(u.entries), func(i int) bool { return u.base+int64(i)+1 > step })
	var sum int64
	for _, update := range u.entries[from:] {
		sum += update.bytes
	}
	return sum
}

// copies returns copies of the updates of all steps after the step after, up to the step at; nil if
// one of them is missing.
func (u *updateLog) copies(after, at int64) [][]byte {
	n := at - after
	if n < 1 || after < u.base || u.last() < at {
		return nil
	}
	out := make([][]byte, 0, n)
	for _, update := range u.entries[after-u.base:][:n] {
		out = append(out, bytes.Join(update.pieces, nil))
	}
	return out
}

// lowest returns the lowest step from which the log can bring a peer to the step at. If the log can
// do so from no earlier step the result is at.
func (u *updateLog) lowest(at int64) int64 {
	if u.base < 0 || u.last() < at {
		return at
	}
	return min(u.base, at)
}
