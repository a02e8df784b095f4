package direct

import (
	"context"
	"sync"
	"time"
)

// Surveyed is the result of a survey for one target.
type Surveyed struct {
	Target Target
	Speed  Speed // valid if Err is nil
	Err    error
}

// surveyMore is how long a survey goes on for slower targets after the first was measured: a target
// that drops packets must not delay a view.
const surveyMore = 300 * time.Millisecond

// Survey measures several TCP targets of the process that waits for the holder of t. It connects to
// all at once, but sends to one after the other, as the paths may share a link. The results have
// the order of the targets.
func Survey(ctx context.Context, targets []Target, t Ticket) []Surveyed {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := make([]Surveyed, len(targets))
	var turn sync.Mutex
	var enough sync.Once
	var working sync.WaitGroup
	for i, to := range targets {
		working.Go(func() {
			s, err := measureIn(ctx, to, t, &turn)
			all[i] = Surveyed{to, s, err}
			// Only a success starts the timer: refusals are fast, and say nothing about other
			// targets.
			if err == nil {
				enough.Do(func() {
					timer := time.AfterFunc(surveyMore, cancel)
					context.AfterFunc(ctx, func() { timer.Stop() })
				})
			}
		})
	}
	working.Wait()
	return all
}

// Usual is the message size in bytes at which paths are compared: a segment of a ring.
const Usual = 1 << 20

// Fastest returns the index of the target at which a message of Usual bytes arrives first. Among
// nearly equal targets Fastest returns the first in the list. It returns -1 if no target could be
// measured.
func Fastest(all []Surveyed) int {
	best := -1
	for i, s := range all {
		if s.Err != nil {
			continue
		}
		if best < 0 || s.Speed.Clearly(all[best].Speed, 1.25) {
			best = i
		}
	}
	return best
}

// Clearly reports whether a message of Usual bytes is faster than over the other path by more than
// factor.
func (s Speed) Clearly(other Speed, factor float64) bool {
	return float64(s.Time(Usual))*factor < float64(other.Time(Usual))
}
