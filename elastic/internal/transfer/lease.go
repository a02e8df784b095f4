package transfer

import "time"

// maxLeases bounds the number of newcomers of one donor.
const maxLeases = 256

// none is the value of lease.snapshot for a newcomer that needs no snapshot.
const none = -1

// lease is a newcomer's claim to a donor's memory. It expires unless a request renews it.
type lease struct {
	snapshot int64     // step of the needed snapshot, or none
	after    int64     // step after which the newcomer needs the updates
	until    time.Time // end of the lease, unless a request renews it
}

// leases holds the leases of a donor, and the timer that ends them. It is not safe for concurrent
// use; the timer calls a function in a goroutine of its own.
type leases struct {
	// term is the time after its last request at which a lease expires.
	term   time.Duration
	by     map[string]*lease // by name of the newcomer; nil after stop
	expire func()            // called when a lease may have expired; must call end
	timer  *time.Timer       // nil before the first lease
}

// newLeases returns leases without any lease.
func newLeases(term time.Duration, expire func()) leases {
	return leases{term: term, by: make(map[string]*lease), expire: expire}
}

// renew makes or renews the lease of a newcomer. It returns nil if there are too many leases, or
// after stop.
func (l *leases) renew(who string) *lease {
	if l.by[who] == nil {
		// stop sets by to nil. The bound limits the memory of a donor that newcomers can claim.
		if l.by == nil || len(l.by) >= maxLeases {
			return nil
		}
		l.by[who] = &lease{snapshot: none, after: never}
	}
	l.touch(who)
	if l.timer == nil {
		l.timer = time.AfterFunc(l.term, l.expire)
		// This is the only lease: end has not set the timer again, as no other lease was left.
	} else if len(l.by) == 1 {
		l.timer.Reset(l.term)
	}
	return l.by[who]
}

// touch renews a lease, if it still exists.
func (l *leases) touch(who string) {
	if held := l.by[who]; held != nil {
		held.until = time.Now().Add(l.term)
	}
}

// end ends the leases that have expired at the time now, and sets the timer to the next expiry.
func (l *leases) end(now time.Time) {
	var first time.Time
	for who, held := range l.by {
		if !held.until.After(now) {
			delete(l.by, who)
		} else if first.IsZero() || held.until.Before(first) {
			first = held.until
		}
	}
	if !first.IsZero() {
		l.timer.Reset(first.Sub(now))
	}
}

// stop ends all leases for good.
func (l *leases) stop() {
	l.by = nil
	if l.timer != nil {
		l.timer.Stop()
	}
}

// needed returns the steps of the needed snapshots.
func (l *leases) needed() map[int64]bool {
	steps := make(map[int64]bool)
	for _, held := range l.by {
		steps[held.snapshot] = true
	}
	return steps
}

// floor returns the step up to which no updates are needed, or never. A newcomer needs no updates
// until its snapshot is being written, which the function begun reports.
func (l *leases) floor(begun func(step int64) bool) int64 {
	floor := int64(never)
	for _, held := range l.by {
		if held.snapshot == none || begun(held.snapshot) {
			floor = min(floor, held.after)
		}
	}
	return floor
}
