package elastic

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/elrun/elrun/elastic/internal/transfer"
	"github.com/elrun/elrun/event"
)

// networkSource is the way of elastic/internal/transfer to the members.
type networkSource struct{ network Network }

// Request implements transfer.Source.
func (s networkSource) Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error) {
	return s.network.Request(ctx, ID(donor), append([]byte{byte(requestTransfer)}, request...))
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

// apply copies the state of the job, if it has one, and goes on with the steps that are
// committed meanwhile, until inView ends: from the moment at which it is level it asks to
// be let in. It returns the bytes that were moved.
func (j *joiner) apply(inView context.Context) (moved int64, err error) {
	g := j.group
	a := &applying{joiner: j, inView: inView, src: &rated{Source: networkSource{j.k.ep.Network}},
		opts: transfer.Options{Self: string(j.k.ep.Self.ID), Donors: j.donors}}
	if g.state == nil {
		return 0, a.run()
	}
	snap, err := transfer.Fetch(inView, a.src, a.opts)
	if err != nil {
		return 0, fmt.Errorf("copy the state: %w", err)
	}
	err = transfer.Keep(inView, a.src, a.opts, snap.Step, func() error { return g.install(snap.Reader(), false) })
	if err != nil {
		return 0, err
	}
	j.nameOdd(snap)
	if snap.Replays {
		a.replayer, _ = g.state.(Replayer)
	}
	a.moved, a.copied = snap.Bytes, snap.Stats.Elapsed
	err = a.run()
	return a.moved, err
}

// nameOdd tells the log which donors had another state than most, or sent it other than they
// had it.
func (j *joiner) nameOdd(snap *transfer.Snapshot) {
	for _, forger := range snap.Forged {
		j.k.emit(0, event.Forged{Who: ID(forger).Short(), Reason: "it sent a chunk of the state that has another hash than most members told"})
	}
	for _, odd := range snap.Odd {
		if !slices.Contains(snap.Forged, odd) {
			j.k.emit(0, event.Forged{Who: ID(odd).Short(), Reason: "its state has other hashes than that of most members"})
		}
	}
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
