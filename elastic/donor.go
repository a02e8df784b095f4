package elastic

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/elrun/elrun/elastic/internal/transfer"
	"github.com/elrun/elrun/event"
)

// networkSource implements transfer.Source with requests over a Network.
type networkSource struct{ network Network }

// Request implements transfer.Source.
func (n networkSource) Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error) {
	return n.network.Request(ctx, ID(donor), append([]byte{byte(requestTransfer)}, request...))
}

// newDonor returns the donor side of this member's transfers of a state. The donor sends at most
// rate bytes a second; 0 means no limit.
func newDonor(s State, rate int) *transfer.Donor {
	_, replays := s.(Replayer)
	return transfer.NewDonor(max(s.Step(), 0), transfer.Config{Rate: int64(rate), Replays: replays})
}

// offerStep passes the present step to the donor, with a snapshot if a newcomer wants one, and with
// the update of the step if the donor keeps a log.
func (h *heldState) offerStep() error {
	step := h.state.Step()
	if h.donor.Wanted(step) {
		if err := h.donor.Snapshot(step, h.state.Save); err != nil {
			return err
		}
	}
	if r, ok := h.state.(Replayer); ok && h.updates == step && h.donor.Logging() {
		return h.donor.Update(step, r.Update)
	}
	return nil
}

// resting returns a channel that delivers a value when a newcomer wants a snapshot while this
// member waits for a view; nil if this member has no valid state.
func (h *heldState) resting() <-chan struct{} {
	if h.donor == nil || h.void {
		return nil
	}
	return h.donor.Asked()
}

// rest reports to the donor whether the state stays unchanged for a while.
func (h *heldState) rest(yes bool) {
	if h.donor != nil && !h.void {
		h.donor.Rest(yes)
	}
}

// followedDonors is the number of donors that keep updates for a newcomer that follows the job: one
// donor sends the updates, and the other can replace it. More donors would cost more requests: the
// newcomer sends each donor a request every few seconds, and many newcomers may ask few members.
const followedDonors = 2

// apply copies the state of the job, if the job has one, and follows the updates that are committed
// meanwhile, until inView ends. As soon as this peer is level it requests admission. apply returns
// the number of bytes of state and updates received.
func (j *joiner) apply(inView context.Context) (moved int64, err error) {
	g := j.group
	a := &joinState{joiner: j, inView: inView, src: &rated{Source: networkSource{j.d.ep.Network}},
		opts: transfer.Options{Self: string(j.d.ep.Self.ID), Donors: func() []string { return j.donors(true) }, MaxDonors: followedDonors}}
	if g.state == nil {
		return 0, a.run()
	}
	// inView ends when this peer is in a view: the session then brings this peer level.
	many := a.opts
	// MaxDonors 0 means the default number of donors: with more donors the copy is faster, and the
	// majority of their hashes decides which state is right.
	many.Donors, many.MaxDonors = func() []string { return j.donors(false) }, 0
	snap, err := transfer.Fetch(inView, a.src, many)
	if err != nil {
		return 0, fmt.Errorf("copy the state: %w", err)
	}
	err = transfer.Keep(inView, a.src, many, snap.Step, func() error { return g.install(snap.Reader(), false) })
	if err != nil {
		return 0, err
	}
	j.nameOdd(snap)
	// If the state cannot replay updates, the session copies the whole state once more.
	if snap.Replays {
		a.replayer, _ = g.state.(Replayer)
	}
	a.moved, a.copied = snap.Bytes, snap.Elapsed
	err = a.run()
	return a.moved, err
}

// nameOdd logs the donors whose hashes of the state differ from the majority's hashes, and the
// donors that sent a chunk whose content does not match the majority's hash.
func (j *joiner) nameOdd(snap *transfer.Snapshot) {
	for _, forger := range snap.Forged {
		j.d.emit(0, event.Forged{Who: ID(forger).Short(), Reason: "a chunk has another hash than most members report"})
	}
	for _, odd := range snap.Odd {
		if !slices.Contains(snap.Forged, odd) {
			j.d.emit(0, event.Forged{Who: ID(odd).Short(), Reason: "its state has other hashes than the state of most members"})
		}
	}
}

// donors returns the IDs of the members to copy from, in the order of reach.donors.
func (j *joiner) donors(spread bool) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, m := range j.reach.donors(spread) {
		out = append(out, string(m.ID))
	}
	return out
}
