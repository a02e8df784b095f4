package p2p

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// Proofs to one peer come one after the other. Proofs to other peers do not wait, and a caller that
// waits gives up with its ctx.
func TestProving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proving{busy: make(map[peer.ID]chan struct{})}
		begin := func(ctx context.Context, id peer.ID) func() {
			end, err := p.begin(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		first := begin(t.Context(), "a")
		begin(t.Context(), "b")()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.begin(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second proof to one peer: %v", err)
		}
		second := make(chan func())
		go func() { second <- begin(t.Context(), "a") }()
		synctest.Wait()
		first()
		(<-second)()
		if len(p.busy) > 0 {
			t.Errorf("left behind: %v", p.busy)
		}
	})
}

// A policy may wait before it decides. The newcomer's proofs wait with it, on one connection, and
// several proofs of one newcomer to one peer do not disturb each other.
func TestPolicyWaits(t *testing.T) {
	s := signer(1)
	asked, decide := make(chan struct{}, 10), make(chan struct{})
	h, m := listenNear(t, func(ctx context.Context, id elastic.ID, r ticket.Request) ticket.Answer {
		asked <- struct{}{}
		select {
		case <-decide:
		case <-ctx.Done():
			t.Error("the policy's time is over")
		}
		return s.Admit(string(id), r)
	})
	newcomer, _ := listenNear(t, nil)
	var proofs sync.WaitGroup
	for range 3 {
		proofs.Go(func() {
			if err := newcomer.Prove(t.Context(), m, newcomer.credential(s)); err != nil {
				t.Error(err)
			}
		})
	}
	<-asked
	conns := len(h.conns.swarm.Conns())
	close(decide)
	proofs.Wait()
	if n := len(h.conns.swarm.Conns()); conns != 1 || n != 1 {
		t.Errorf("%d connections while the policy waits, and then %d", conns, n)
	}
}
