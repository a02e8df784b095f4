package direct

import (
	"context"
	"sync"
	"time"
)

// Surveyed is what a survey found at one target.
type Surveyed struct {
	Target Target
	Speed  Speed // if Err is nil
	Err    error
}

const (
	// surveyTime bounds a survey, and surveyMore is how long it goes on for slower targets when
	// the first has been measured: one that is dropped silently must not hold up a view.
	surveyTime = 2 * time.Second
	surveyMore = 300 * time.Millisecond
)

// Survey measures the one who waits for the holder of t at each of several TCP targets. It connects
// to all at once and sends to one after the other, as the ways may share a link. The results are
// in the order of the targets.
func Survey(ctx context.Context, targets []Target, t Ticket) []Surveyed {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	all := make([]Surveyed, len(targets))
	var turn sync.Mutex
	var enough sync.Once
	var working sync.WaitGroup
	for i, to := range targets {
		working.Go(func() {
			s, err := measureIn(ctx, to, t, &turn)
			all[i] = Surveyed{to, s, err}
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

// Usual is the size of the messages by which paths are compared, in bytes: a segment of a ring.
const Usual = 1 << 20

// Fastest returns the place of the target over which a message of the usual size arrives first;
// of nearly equal ones the earliest in the list. It returns -1 if none could be measured.
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

// Clearly reports whether a message of the usual size takes less than by a factor of the time that
// it takes over the other path.
func (s Speed) Clearly(other Speed, factor float64) bool {
	return float64(s.Time(Usual))*factor < float64(other.Time(Usual))
}
