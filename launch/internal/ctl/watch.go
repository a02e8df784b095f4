package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/wire"
)

// watchPeriod is the time between two snapshots of a watch.
const watchPeriod = time.Second

// watch follows the launchers of a job on this host. Of each it keeps the last snapshot, so that the launcher sends
// only the points of series that are new.
type watch struct {
	job   string
	known map[SocketName]timeline.Snapshot
}

// next returns a new snapshot of the job.
func (w *watch) next(ctx context.Context) (timeline.Snapshot, error) {
	all, err := ListSockets()
	if err != nil {
		return timeline.Snapshot{}, fmt.Errorf("launch: list the elruns of job %s: %w", w.job, err)
	}
	all = slices.DeleteFunc(all, func(n SocketName) bool { return n.Job != w.job || !n.isLauncher() })
	replies, err := askAll(all, func(n SocketName) (wire.Reply, error) { return w.ask(ctx, n) })
	w.known = make(map[SocketName]timeline.Snapshot)
	for i, n := range all {
		if s := replies[i].Snapshot; s != nil {
			w.known[n] = *s
		}
	}
	if len(w.known) == 0 {
		return timeline.Snapshot{}, fmt.Errorf("launch: job %s: %w; elrun status shows what its peers know", w.job, cmp.Or(err, errNoLauncher))
	}
	return timeline.Merge(combine(replies)...), nil
}

// ask asks a launcher. The snapshot in the reply is whole.
func (w *watch) ask(ctx context.Context, n SocketName) (wire.Reply, error) {
	before, is := w.known[n]
	reply, err := Ask(ctx, n, wire.Request{Request: "watch", Since: before.Step})
	if err != nil || reply.Snapshot == nil || !is {
		return reply, err
	}
	if whole, ok := timeline.After(*reply.Snapshot, before); ok {
		reply.Snapshot = &whole
		return reply, nil
	}
	return Ask(ctx, n, wire.Request{Request: "watch"})
}

// combine returns a snapshot of each launcher: its own answer, or else what another one knows of it.
func combine(replies []wire.Reply) (known []timeline.Snapshot) {
	answered := make(map[string]bool)
	for _, r := range replies {
		if r.Snapshot != nil {
			known = append(known, *r.Snapshot)
			answered[r.Launcher] = true
		}
	}
	for _, r := range replies {
		for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
			if !answered[name] {
				known = append(known, timeline.Snapshot{Peers: r.Parts[name].Peers, Former: r.Parts[name].Former})
				answered[name] = true
			}
		}
	}
	return known
}
