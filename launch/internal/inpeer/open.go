package inpeer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
)

// A job is closed at first: its peers listen on loopback only. A ticket opens it:
//
//   1. the peer that makes the ticket begins to listen on the network (widen),
//   2. asks all members to do the same, and so learns their new addresses (openJob),
//   3. asks them once more if there are new addresses, so that they learn each other's,
//   4. and tells its launcher, whose later peers listen on the network from the start.
//
// The first member of the next view asks the peers that joined in the meantime.

// errLocal reports that the user restricted this peer to the loopback interface.
var errLocal = errors.New("the peers listen on loopback only, as --listen says: start the job with --listen auto or all")

const (
	// openPeriod is the time limit for all members, together, to start listening on the network.
	openPeriod = 4 * time.Second
	// mapPeriod is the time limit for the router's port mapping; after it a ticket is made without
	// mapped ports.
	mapPeriod = 2 * time.Second
	// openTries is the number of times that members are asked again in the background. The pause
	// between two times doubles, from openPeriod on.
	openTries = 5
	// openAtOnce bounds the members that are asked at the same time.
	openAtOnce = 16
)

// isWide reports whether this peer listens on the network, in an open job.
func (p *peer) isWide() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wide
}

// widen makes this peer and its later identities listen on the network, unless the user has
// restricted them. It returns an error if no other host can reach the peer afterwards.
func (p *peer) widen() error {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.mu.Lock()
	host, wide := p.p2pHost, p.wide
	p.mu.Unlock()
	if wide {
		return nil
	}
	// With an explicit address list the peer may listen on the network already.
	if p.env.Listen == spec.ListenAuto {
		if err := host.Open(p2p.NetworkAddrs()); err != nil {
			return err
		}
	}
	// The peer is open if any of its addresses is reachable from other hosts.
	switch {
	case !spec.OnlyLoopback(host.Addrs()):
	case p.env.Listen == spec.ListenAuto:
		return errors.New("this host has no network but loopback")
	default:
		return errLocal
	}
	p.mu.Lock()
	p.wide, p.latest.Open = true, true
	p.mu.Unlock()
	p.report()
	return nil
}

// openJob makes this peer and all members listen on the network. It returns a note for people that
// names the members that cannot listen there, or "".
func (p *peer) openJob(ctx context.Context) (note string) {
	if err := p.widen(); err != nil {
		return fmt.Sprintf("the ticket works on this host only, because other hosts cannot reach the peers here: %v", err)
	}
	p.awaitMapped(ctx)
	failed := p.openMembers(ctx, p.known().Members)
	if len(failed) == 0 {
		return ""
	}
	p.openLater()
	return fmt.Sprintf("%d members cannot be reached from other hosts, so newcomers on other hosts cannot join: %s", len(failed), failed[0])
}

// awaitMapped waits for the router's port mapping, so that a ticket contains the mapped address.
func (p *peer) awaitMapped(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mapPeriod)
	defer cancel()
	p.mu.Lock()
	host := p.p2pHost
	p.mu.Unlock()
	host.Mapped(ctx)
}

// openLater asks the members that have not answered yet, in the background, a few times: a host on
// which many peers start is slow to answer.
func (p *peer) openLater() {
	p.mu.Lock()
	id := p.id
	p.mu.Unlock()
	id.work.Go(func() {
		wait := openPeriod
		for range openTries {
			p.mu.Lock()
			fresh := unasked(p.latest.Members, p.openAsked)
			p.mu.Unlock()
			if len(fresh) == 0 {
				return
			}
			_ = p.openMembers(id.ctx, fresh) // failures appear in the note of the next ticket
			if pause.For(id.ctx, wait) != nil {
				return
			}
			wait *= 2
		}
	})
}

// unasked returns the members that have not answered.
func unasked(members []elastic.Member, answered map[elastic.ID]bool) []elastic.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m elastic.Member) bool { return answered[m.ID] })
}

// openMembers makes members listen on the network, and spreads their new addresses. It returns the
// members that do not listen there, with the causes.
func (p *peer) openMembers(ctx context.Context, members []elastic.Member) (failed []string) {
	ctx, cancel := context.WithTimeoutCause(ctx, openPeriod, fmt.Errorf("no answer within %v", openPeriod))
	defer cancel()
	changed, failed := p.askAll(ctx, members)
	if changed {
		_, _ = p.askAll(ctx, p.known().Members) // the first round has reported failures
	}
	return failed
}

// askAll asks members to listen on the network. It reports whether any address is new, and the
// members that do not listen there.
func (p *peer) askAll(ctx context.Context, members []elastic.Member) (changed bool, failed []string) {
	p.mu.Lock()
	host, self := p.p2pHost, p.id.ep.Self.ID
	p.mu.Unlock()
	var work sync.WaitGroup
	var mu sync.Mutex
	silent := make(map[elastic.ID]bool) // members without an answer in time
	// The members are asked concurrently, at most openAtOnce at a time.
	slots := make(chan struct{}, openAtOnce)
	for _, m := range members {
		if m.ID == self {
			continue
		}
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			is, err := host.Exchange(ctx, m.ID, true)
			mu.Lock()
			defer mu.Unlock()
			changed = changed || is
			if err != nil {
				silent[m.ID] = ctx.Err() != nil
				failed = append(failed, fmt.Sprintf("peer %d on %s: %v", m.Index, m.Host, err))
			}
		})
	}
	work.Wait()
	// Members that have answered need not be asked again, whether they listen now or not.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.openAsked == nil {
		p.openAsked = make(map[elastic.ID]bool)
	}
	for _, m := range members {
		if !silent[m.ID] {
			p.openAsked[m.ID] = true
		}
	}
	return changed, failed
}
