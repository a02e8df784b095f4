package elastic

import "time"

// regroup is the time for which a group without a quorum waits for further members after the first
// missing member has sent a message again. Without the wait the group would have a quorum at once
// and put out the members that return slightly later. regroup is longer than the period of
// heartbeats to suspects.
const regroup = 300 * time.Millisecond

// regrouping holds the suspects that have sent messages again while too few members are reached,
// until the suspicions of all of them are withdrawn together. It is pure: times come from the
// caller.
type regrouping struct {
	returned []ID
	until    time.Time // when the suspicions are withdrawn at the latest
}

// add postpones the withdrawal of a suspicion.
func (r *regrouping) add(id ID, now time.Time) {
	if len(r.returned) == 0 {
		r.until = now.Add(regroup)
	}
	r.returned = append(r.returned, id)
}

// due removes and returns the postponed suspicions if the wait is over, or if missing reports that
// no suspect is left. It calls missing, which visits all records, only while the wait lasts.
func (r *regrouping) due(now time.Time, missing func() bool) []ID {
	if len(r.returned) == 0 || now.Before(r.until) && missing() {
		return nil
	}
	due := r.returned
	r.returned = nil
	return due
}
