package elastic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elrun/elrun/internal/event"
	"github.com/elrun/elrun/internal/transfer"
)

// bulkSource is the way of internal/transfer to the members.
type bulkSource struct{ bulk Bulk }

// Request implements transfer.Source.
func (b bulkSource) Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error) {
	return b.bulk.Request(ctx, ID(donor), append([]byte{byte(requestTransfer)}, request...))
}

// newDonor makes this member's side of transfers.
func (g *Group) newDonor() *transfer.Donor {
	_, replays := g.state.(Replayer)
	return transfer.NewDonor(max(g.state.Step(), 0), transfer.Config{Rate: int64(g.cfg.StateRate), Replays: replays})
}

// offerStep gives those who join what they want of the step that the state is at now.
func (g *Group) offerStep() error {
	step := g.state.Step()
	if g.donor.Wanted(step) {
		if err := g.donor.Snapshot(step, g.state.Save); err != nil {
			return err
		}
	}
	if r, ok := g.state.(Replayer); ok && g.updates == step && g.donor.Logging() {
		return g.donor.Update(step, r.Update)
	}
	return nil
}

// resting returns a channel that says that a snapshot is wanted while this member waits
// for a view; nil if it has no state.
func (g *Group) resting() <-chan struct{} {
	if g.donor == nil || g.void {
		return nil
	}
	return g.donor.Asked()
}

// rest says whether the state stays as it is for a while.
func (g *Group) rest(yes bool) {
	if g.donor != nil && !g.void {
		g.donor.Rest(yes)
	}
}

// copyState copies the state of the job, and goes on with the steps that are committed
// meanwhile, until inView ends: from the moment at which it is level the members are
// asked to let it in. It returns the bytes that were moved.
func (j *joiner) copyState(inView context.Context) (int64, error) {
	g := j.group
	o := transfer.Options{Self: string(j.k.ep.Self.ID), Donors: j.donors}
	src := bulkSource{j.k.ep.Bulk}
	snap, err := transfer.Fetch(inView, src, o)
	if err != nil {
		return 0, fmt.Errorf("copy the state: %w", err)
	}
	err = transfer.Keep(inView, src, o, snap.Step, func() error { return g.install(snap.Reader(), false) })
	if err != nil {
		return 0, err
	}
	for _, odd := range snap.Odd {
		j.k.emit(0, event.Resync{Who: ID(odd).Short(), Reason: "its state differs from that of the others"})
	}
	moved := snap.Bytes
	if !snap.Replays {
		return moved, j.ask()
	}
	r, ok := g.state.(Replayer)
	if !ok {
		return moved, j.ask()
	}
	var asked error
	err = transfer.Follow(inView, src, o, transfer.Following{
		After: snap.Step,
		Apply: func(_ int64, update []byte) error {
			moved += int64(len(update))
			return g.apply(r, update)
		},
		Level: func(_ int64, level bool) {
			if level {
				asked = errors.Join(asked, j.ask())
			}
		},
	})
	var never *transfer.NeverLevelError
	switch {
	case errors.As(err, &never):
		j.k.emit(0, event.Parked{Who: j.k.ep.Self.ID.Short(), Reason: j.pauseFor(never, snap)})
		return moved, j.ask()
	case inView.Err() != nil:
		return moved, asked
	}
	return moved, err
}

// pauseFor says in words what it costs to let in a peer that cannot keep up.
func (j *joiner) pauseFor(e *transfer.NeverLevelError, snap *transfer.Snapshot) string {
	pause := time.Duration(0)
	if s := snap.Stats.Elapsed.Seconds(); s > 0 {
		pause = snap.Stats.Elapsed.Round(time.Millisecond)
	}
	return fmt.Sprintf("%v: it is let in with one pause of about %v, in which it copies the state", e, pause)
}

// donors returns the members to copy from.
func (j *joiner) donors() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]string, 0, len(j.members))
	for _, m := range j.members {
		out = append(out, string(m.ID))
	}
	return out
}

// ask asks the members to let this peer in.
func (j *joiner) ask() error {
	j.mu.Lock()
	members := j.members
	j.mu.Unlock()
	var ids []ID
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return j.k.ask(ids)
}
