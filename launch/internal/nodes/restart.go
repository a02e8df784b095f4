package nodes

import "time"

const (
	// quickDeath is the running time below which a process has hardly done any work. To restart
	// such a process at once would only waste the machine's time.
	quickDeath = 10 * time.Second
	// The pause before the restart of a process that died quickly. It doubles from firstPause to
	// longPause (exponential backoff).
	firstPause = time.Second
	longPause  = time.Minute
)

// restarts decides whether a failed node of a program is restarted, and after which pause. Without the
// pause a node that fails at once each time would use up the machine's time. For peers, package
// internal/job decides. It reads no clock and is not safe for concurrent use.
type restarts struct {
	limit int           // restarts that are allowed in all
	left  int           // remaining restarts
	quick map[int]int   // consecutive quick deaths, by local index
	Pause time.Duration // before the second restart in a row
}

// NewRestarts returns a restarts that allows n restarts in all.
func NewRestarts(n int) *restarts {
	return &restarts{limit: n, left: n, quick: make(map[int]int), Pause: firstPause}
}

// used returns the number of restarts so far.
func (r *restarts) used() int { return r.limit - r.left }

// Decide handles the death of peer index, which ran for the time life. It returns the pause before
// the restart, and false if the peer is not restarted.
func (r *restarts) Decide(index int, life time.Duration) (pause time.Duration, again bool) {
	if r.left == 0 {
		return 0, false
	}
	r.left--
	if life >= quickDeath {
		r.quick[index] = 0
		return 0, true
	}
	r.quick[index]++
	if r.quick[index] == 1 {
		return 0, true // a single quick death is restarted at once
	}
	return min(longPause, r.Pause<<min(r.quick[index]-2, 10)), true
}
