package say

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
)

// JoinQueue tracks the local peers that wait to join a running group, to print lines about long
// waits. It does no I/O, reads no clock, and is not safe for concurrent use.
//
//	hello to a running group --enter--> waits --a view with the peer, or end of its process--> gone
type JoinQueue struct {
	waiting    map[int]waiter // by local index
	nextReport time.Time      // time of the next line, while a peer waits
	pause      time.Duration  // pause between the next line and the line after it
}

// waiter is a waiting peer.
type waiter struct {
	id string // short form of the peer's present ID
	// since is the time of the hello, from which the waiting time is counted.
	since  time.Time
	reason string // the reason for the wait, "" if unknown
}

const (
	// joinReportPause is how long a peer waits before the first line about it is printed. The pause
	// before each further line doubles, up to maxJoinReportPause.
	joinReportPause    = 10 * time.Second
	maxJoinReportPause = time.Minute
)

// Add records that a peer begins to wait, under a new ID.
func (j *JoinQueue) Add(index int, id string, now time.Time) {
	if j.waiting == nil {
		j.waiting = make(map[int]waiter)
	}
	if len(j.waiting) == 0 {
		j.nextReport, j.pause = now.Add(joinReportPause), joinReportPause
	}
	j.waiting[index] = waiter{id: id, since: now}
}

// Remove records that a peer does not wait any more.
func (j *JoinQueue) Remove(index int) { delete(j.waiting, index) }

// Event updates the waiting peers from an event of any peer.
func (j *JoinQueue) Event(body event.Body) {
	switch b := body.(type) {
	case event.View:
		maps.DeleteFunc(j.waiting, func(_ int, w waiter) bool { return slices.Contains(b.Members, w.id) })
	case event.Parked:
		for i, w := range j.waiting {
			if w.id == b.Who {
				w.reason = b.Reason
				j.waiting[i] = w
			}
		}
	}
}

// Due returns the line that is due at now, or nil. The line has the waiting peers, the time and the
// reason. If reasons differ, it gives the reason of the peer that has waited longest.
func (j *JoinQueue) Due(now time.Time) []string {
	if len(j.waiting) == 0 || now.Before(j.nextReport) {
		return nil
	}
	// The pause grows, because a wait of hours needs only one line a minute.
	j.pause = min(2*j.pause, maxJoinReportPause)
	j.nextReport = now.Add(j.pause)
	indices := slices.Sorted(maps.Keys(j.waiting))
	since, reason := now, "no member has let it in yet"
	if len(indices) > 1 {
		reason = "no member has let them in yet"
	}
	given := now // start of the wait of the peer whose reason is given
	for _, i := range indices {
		w := j.waiting[i]
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
	return []string{fmt.Sprintf("%s still %s to join, for %v now: %s", ListPeers(indices), verb, now.Sub(since).Round(time.Second), reason)}
}

// ListPeers describes a list of local indices.
func ListPeers(indices []int) string {
	// A line has room for about this number of indices.
	const shown = 8
	if len(indices) == 1 {
		return fmt.Sprintf("peer %d", indices[0])
	}
	var words []string
	for _, i := range indices[:min(shown, len(indices))] {
		words = append(words, fmt.Sprint(i))
	}
	if n := len(indices) - shown; n > 0 {
		words = append(words, fmt.Sprintf("%d more", n))
	}
	return "peers " + strings.Join(words, ", ")
}
