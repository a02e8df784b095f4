package launch

import "time"

const (
	// quickDeath is the life of a process that hardly got to work: to start such a one
	// again at once would only burn the machine's time.
	quickDeath = 10 * time.Second
	// The pause before a process that died quickly is started again, doubled each time.
	firstPause = time.Second
	longPause  = time.Minute
)

// restarts decides whether a crashed peer is started again. It is pure and not safe for
// concurrent use.
type restarts struct {
	left  int           // of Options.Restart
	quick map[int]int   // quick deaths in a row, by local index
	pause time.Duration // before the second restart in a row
}

func newRestarts(n int) *restarts {
	return &restarts{left: n, quick: make(map[int]int), pause: firstPause}
}

// decide takes the death of peer index after the given life. It returns how long to wait
// before the peer is started again, and false where it is not.
func (r *restarts) decide(index int, life time.Duration) (pause time.Duration, again bool) {
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
		return 0, true // once is no series
	}
	return min(longPause, r.pause<<min(r.quick[index]-2, 10)), true
}
