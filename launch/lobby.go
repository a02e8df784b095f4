package launch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
)

// lobby keeps account of the local peers that want to join a running group and are not
// in yet, so that people who wait for them are told. It is pure and not safe for
// concurrent use.
//
//	hello to a group that runs --enter--> waits --a view that has it, end of its process--> gone
type lobby struct {
	waiting map[int]waiter // by local index
	tellAt  time.Time      // of the next line, while there is anybody
	pause   time.Duration  // before the one after it
}

// waiter is one of them.
type waiter struct {
	id     string // short, of its present identity
	since  time.Time
	reason string // why it is not let in, "" if nobody has said
}

const (
	// lobbyPause is how long peers have waited before people are told; a wait twice as
	// long passes before the next line, and so on up to lobbyMost.
	lobbyPause = 10 * time.Second
	lobbyMost  = time.Minute
)

// enter notes that a peer begins to wait, under a new ID.
func (l *lobby) enter(index int, id string, now time.Time) {
	if l.waiting == nil {
		l.waiting = make(map[int]waiter)
	}
	if len(l.waiting) == 0 {
		l.tellAt, l.pause = now.Add(lobbyPause), lobbyPause
	}
	l.waiting[index] = waiter{id: id, since: now}
}

// leave notes that a peer does not wait any more.
func (l *lobby) leave(index int) { delete(l.waiting, index) }

// event takes an event of any peer.
func (l *lobby) event(body event.Body) {
	switch b := body.(type) {
	case event.View:
		maps.DeleteFunc(l.waiting, func(_ int, w waiter) bool { return slices.Contains(b.Members, w.id) })
	case event.Parked:
		for i, w := range l.waiting {
			if w.id == b.Who {
				w.reason = b.Reason
				l.waiting[i] = w
			}
		}
	}
}

// due returns the line whose time has come, or nil: who waits, how long, and why. Of
// several reasons it tells that of the peer that has waited the longest.
func (l *lobby) due(now time.Time) []string {
	if len(l.waiting) == 0 || now.Before(l.tellAt) {
		return nil
	}
	l.pause = min(2*l.pause, lobbyMost)
	l.tellAt = now.Add(l.pause)
	indices := slices.Sorted(maps.Keys(l.waiting))
	since, reason := now, "no member has let it in yet"
	if len(indices) > 1 {
		reason = "no member has let them in yet"
	}
	given := now // since when the peer waits whose reason it is
	for _, i := range indices {
		w := l.waiting[i]
		if w.since.Before(since) {
			since = w.since
		}
		if w.reason != "" && w.since.Before(given) {
			given, reason = w.since, w.reason
		}
	}
	verb := "waits"
	if len(indices) > 1 {
		verb = "wait"
	}
	return []string{fmt.Sprintf("%s still %s to join, for %v now: %s", listPeers(indices), verb, now.Sub(since).Round(time.Second), reason)}
}
