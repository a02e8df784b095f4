package elastic

import (
	"context"
	"sync"
)

// status is the state of a peer in its group, as its driver publishes it.
type status struct {
	phase phase
	// why is the reason for the phase, if the membership has ended.
	why    string
	view   View       // the latest view
	former []Member   // some members that were lost or kicked, the latest first
	ended  bool       // members have left because the job is at its end
	paused bool       // a newcomer that must not be admitted now, see Admin.Again
	gap    *quorumGap // too few members can be reached; nil if there are enough
	wrong  error      // why no view can help: first views differ, or a mistake of the program; nil if neither
}

// phase is the stage of an identity's membership. It only increases.
type phase uint8

const (
	outside phase = iota // is in no view yet
	inside               // is in the view
	left                 // left at its own request
	fenced               // was put out, and may join under a new identity
	kicked               // was put out for good
	closed               // the driver has stopped
)

// quorumGap describes a lack of members: how many are present, and how many are needed.
type quorumGap struct{ present, needed int }

// watchedStatus holds the status of an identity for other goroutines, which read it and wait for
// its changes. The driver's goroutine changes it.
type watchedStatus struct {
	mu      sync.Mutex // guards both fields together, so that a reader misses no change after the status that it has read
	current status
	changed chan struct{} // closed when current changes, and then replaced
}

// set changes the status and wakes the goroutines that wait for a change. The status of a closed
// driver does not change.
func (w *watchedStatus) set(change func(*status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current.phase == closed {
		return
	}
	change(&w.current)
	close(w.changed)
	w.changed = make(chan struct{})
}

// now returns the status, and a channel that is closed when the status changes.
func (w *watchedStatus) now() (status, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current, w.changed
}

// while returns a context that ends with ctx, or as soon as the function holds returns false. The
// caller must call the returned function, which waits for the goroutine behind the context.
func (w *watchedStatus) while(ctx context.Context, holds func(status) bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		for ctx.Err() == nil {
			s, changed := w.now()
			if !holds(s) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// endJob records that members have left because the job is at its end.
func (w *watchedStatus) endJob() { w.set(func(s *status) { s.ended = true }) }

// paused reports whether the launcher has told this newcomer to wait.
func (w *watchedStatus) paused() bool {
	s, _ := w.now()
	return s.paused
}
