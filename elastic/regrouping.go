package elastic

import "time"

// regroup is the time for which a group that was too small waits, after the first missing member is
// heard again, for others that return at the same time. Without the wait the remaining suspicions
// would put those members out. It is longer than the period at which suspects receive heartbeats.
const regroup = 300 * time.Millisecond

// regrouping holds the suspects that were heard again while too few members are reached, until
// their suspicions are withdrawn together. It is pure: times come from the caller.
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
// no suspect is left. It calls missing only if it has to.
func (r *regrouping) due(now time.Time, missing func() bool) []ID {
	if len(r.returned) == 0 || now.Before(r.until) && missing() {
		return nil
	}
	due := r.returned
	r.returned = nil
	return due
}
