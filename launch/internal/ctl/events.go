package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/wire"
)

// eventsPeriod is the time between two questions for events.
const eventsPeriod = 250 * time.Millisecond

// listener follows the events of the launchers of a job on this host.
type listener struct {
	job  string
	next map[SocketName]int64 // Request.Since
}

// errStopped reports that the reader of the events wants no more.
var errStopped = fmt.Errorf("stopped")

// begin begins to listen, and yields what is known before. An error was yielded, unless it is errStopped.
func (l *listener) begin(ctx context.Context, yield func(event.Event, error) bool) error {
	_, err := l.hear(ctx)
	var s timeline.Snapshot
	if err == nil {
		s, err = (&watch{job: l.job}).next(ctx)
	}
	if err != nil {
		yield(event.Event{}, err)
		return err
	}
	for _, e := range known(s) {
		if !yield(e, nil) {
			return errStopped
		}
	}
	return nil
}

// hear returns the new events of all launchers, in the order of their times.
func (l *listener) hear(ctx context.Context) (events []event.Event, err error) {
	all, err := ListSockets()
	if err != nil {
		return nil, fmt.Errorf("launch: list the elruns of job %s: %w", l.job, err)
	}
	all = slices.DeleteFunc(all, func(n SocketName) bool { return n.Job != l.job || !n.isLauncher() })
	replies, err := askAll(all, func(n SocketName) (wire.Reply, error) {
		return Ask(ctx, n, wire.Request{Request: "events", Since: l.next[n]})
	})
	heard := false
	for i, n := range all {
		if replies[i].Next == 0 {
			continue
		}
		heard, l.next[n] = true, replies[i].Next
		for _, line := range replies[i].Events {
			var e event.Event
			if json.Unmarshal(line, &e) == nil {
				events = append(events, e)
			}
		}
	}
	slices.SortStableFunc(events, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	if !heard {
		return events, fmt.Errorf("launch: job %s: %w; elrun status shows what its peers know", l.job, cmp.Or(err, errNoLauncher))
	}
	return events, nil
}

// known returns the events that tell what a snapshot has of a job, its peers and its view.
func known(s timeline.Snapshot) []event.Event {
	events := []event.Event{{Time: s.Time, Index: event.NoPeer, Body: s.Job}}
	for _, p := range s.Peers {
		events = append(events, event.Event{Time: s.Time, Peer: p.ID, Index: p.Index, Body: event.Member{Who: p.ID, WhoIndex: p.Index, Host: p.Host,
			Machine: p.Machine, Site: p.Site, Launcher: p.Launcher, PID: p.PID}})
	}
	if n := len(s.Recent); n > 0 && len(s.Recent[n-1].Members) > 0 {
		v := s.Recent[n-1]
		events = append(events, event.Event{Time: s.Time, Peer: v.Members[0], Epoch: v.Epoch, Body: event.View{Members: v.Members, Reason: v.Reason}})
	}
	return events
}
