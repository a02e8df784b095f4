package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// proposal is what each member tells the others before the first view.
type proposal struct {
	Epoch uint64 `json:"epoch"`
	Hash  []byte `json:"hash"` // View.Hash of the view as the sender was told it
}

// agree returns when every member has proposed the same first view. It starts the
// reader of the control network, which goes on until that closes.
func (g *Group) agree(ctx context.Context, v View) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	agreed := make(chan error, 1)
	g.reading.Go(func() { g.read(v, agreed) })
	if len(v.Members) == 1 {
		return nil
	}
	hash := v.Hash()
	msg, err := json.Marshal(proposal{Epoch: v.Epoch, Hash: hash[:]})
	if err != nil {
		return fmt.Errorf("propose %v: %w", v, err)
	}
	for _, m := range v.Members {
		if m.ID == g.cfg.Self.ID {
			continue
		}
		if err := g.cfg.Control.Send(ctx, m.ID, msg); err != nil {
			return fmt.Errorf("propose %v to %s: %w", v, m.ID.Short(), err)
		}
	}
	select {
	case err := <-agreed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("agree on %v: %w", v, context.Cause(ctx))
	}
}

// read takes the events of the control network until it closes. It sends agreed one
// value: nil when all members have proposed v, or why they cannot.
func (g *Group) read(v View, agreed chan<- error) {
	open := make(map[ID]bool)
	for _, m := range v.Members {
		open[m.ID] = m.ID != g.cfg.Self.ID
	}
	left, settled := len(v.Members)-1, false
	settle := func(err error) {
		if !settled {
			settled = true
			agreed <- err
		}
	}
	for e := range g.cfg.Control.Events() {
		if e.Kind != PeerMessage || !open[e.Peer] {
			continue // the data plane notices deaths; who is in is settled once
		}
		if err := check(e, v); err != nil {
			settle(err)
			continue
		}
		open[e.Peer] = false
		if left--; left == 0 {
			settle(nil)
		}
	}
	settle(errors.New("the control network was closed"))
}

// check compares a member's proposal with the view made here.
func check(e PeerEvent, v View) error {
	var p proposal
	if err := json.Unmarshal(e.Data, &p); err != nil {
		return fmt.Errorf("proposal of %s: %w", e.Peer.Short(), err)
	}
	if hash := v.Hash(); p.Epoch != v.Epoch || string(p.Hash) != string(hash[:]) {
		return fmt.Errorf("%s was told another first view than this peer (%v): were they started by different launchers?",
			e.Peer.Short(), v)
	}
	return nil
}
