package hosts

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// List holds the hosts of a job and the assignment of peers to them. A nil list means that
// peers run on this host.
type List struct {
	Hosts       []*Host   // connected hosts and hosts whose connection was lost
	Assignments []*Host   // by index of the peer; nil for a peer without a fixed host
	next        time.Time // time of the next heartbeat
	Connects    *Connects
}

// Wide reports whether peers listen at all addresses of their hosts, as the probes do.
func Wide(listen string) bool { return listen == spec.ListenAuto || listen == spec.ListenAll }

// JoinErrors returns all errors in one line; errors.Join would separate them by line ends.
func JoinErrors(errs []error) string {
	var words []string
	for _, err := range errs {
		words = append(words, err.Error())
	}
	return strings.Join(words, "; ")
}

// DropUnreachable leaves out hosts until each pair of the remaining hosts can connect in at least
// one direction or, if relays is set, through a third host. It tries to leave out few hosts, and
// returns an error for each of them. If others is set, peers do not listen at the addresses of the
// probes, and DropUnreachable does nothing.
func (l *List) DropUnreachable(others, relays bool) (failed []error) {
	if others || len(l.Hosts) < 2 {
		return nil
	}
	advice := ", or use --relay members"
	if relays {
		advice = " (no other host connects to both)"
	}
	results, errs := l.TryAll()
	// out marks hosts that are left out, by index in l.hosts.
	out := make(map[int]bool)
	for i, err := range errs {
		if err != nil {
			failed, out[i] = append(failed, err), true
		}
	}
	// Greedy: leave out the host with the most broken pairs, until no pair is broken.
	for {
		worst, with := l.mostCut(results, out, relays)
		if len(with) == 0 {
			break
		}
		name, other := l.Hosts[worst].Name, l.Hosts[with[0]].Name
		failed = append(failed, fmt.Errorf("host %s: cannot connect with host %s (%s): let TCP through%s", name, other, results[worst].Failed[other], advice))
		out[worst] = true
	}
	// End the agents of the hosts that were left out.
	var rest []*Host
	for i, h := range l.Hosts {
		if out[i] {
			h.hangUp()
			continue
		}
		rest = append(rest, h)
	}
	l.Hosts = rest
	return failed
}

// TryAll makes each host try to connect to every other host. It returns the result of each host,
// and the errors of hosts that could not try.
func (l *List) TryAll() (results []wire.ProbeResult, errs []error) {
	results, errs = make([]wire.ProbeResult, len(l.Hosts)), make([]error, len(l.Hosts))
	if len(l.Hosts) < 2 {
		return results, errs
	}
	var work sync.WaitGroup
	for i, h := range l.Hosts {
		// Each host tries the addresses of all other hosts. So two hosts try both directions: a
		// firewall may block only one direction.
		var rest []wire.HostAddrs
		for k, o := range l.Hosts {
			if k != i {
				rest = append(rest, wire.HostAddrs{Host: o.Name, Addrs: o.addrs})
			}
		}
		work.Go(func() { results[i], errs[i] = h.reachable(rest) })
	}
	work.Wait()
	return results, errs
}

// mostCut returns the host with the largest number of hosts that it cannot connect to, and these
// hosts. If several have the same number, it returns the last one.
func (l *List) mostCut(results []wire.ProbeResult, out map[int]bool, relays bool) (mostCut int, with []int) {
	connects := func(i, k int) bool {
		_, there := results[i].Failed[l.Hosts[k].Name]
		_, back := results[k].Failed[l.Hosts[i].Name]
		return !out[i] && !out[k] && !(there && back)
	}
	for i := range l.Hosts {
		var cut []int
		for k := range l.Hosts {
			if k == i || out[i] || out[k] || connects(i, k) {
				continue
			}
			// With relays two hosts need no connection of their own if a third host connects to
			// both.
			between := func(m int) bool { return m != i && m != k && connects(i, m) && connects(m, k) }
			if !relays || !anyOf(len(l.Hosts), between) {
				cut = append(cut, k)
			}
		}
		if len(cut) > 0 && len(cut) >= len(with) {
			mostCut, with = i, cut
		}
	}
	return mostCut, with
}

// anyOf reports whether ok holds for a number in [0, n), here an index of a host.
func anyOf(n int, ok func(int) bool) bool {
	for i := range n {
		if ok(i) {
			return true
		}
	}
	return false
}

// Assign assigns peers to the slots of the hosts, in order. most bounds the total number of peers;
// 0 means no bound.
func (l *List) Assign(most int) {
	for _, h := range l.Hosts {
		if h.Slots == 0 {
			h.Slots = max(1, h.Info.Cores)
		}
		for range h.Slots {
			if most == 0 || len(l.Assignments) < most {
				l.Assignments = append(l.Assignments, h)
			}
		}
	}
}

// HostFor returns the host for a peer: its assigned host or, if there is none or it was lost, the
// host with the fewest peers per slot. count returns the number of peers that run on a host.
func (l *List) HostFor(index int, count func(host string) int) *Host {
	// With a nil list all peers run on this host.
	if l == nil {
		return nil
	}
	if h := l.AssignedHost(index); h != nil && !h.LostNow() {
		return h
	}
	// The load of a host is its number of peers per slot, this peer included. A lost host is the
	// last choice.
	load := func(h *Host) float64 {
		n := 1 + count(h.Name)
		if h.LostNow() {
			n += spec.MaxPeers * spec.MaxPeers
		}
		return float64(n) / float64(h.Slots)
	}
	return slices.MinFunc(l.Hosts, func(a, b *Host) int {
		switch x, y := load(a), load(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// AssignedHost returns the assigned host of a peer, or nil.
func (l *List) AssignedHost(index int) *Host {
	if index >= len(l.Assignments) {
		return nil
	}
	return l.Assignments[index]
}

// AssignTo assigns a peer to a host.
func (l *List) AssignTo(index int, h *Host) {
	for len(l.Assignments) <= index {
		l.Assignments = append(l.Assignments, nil)
	}
	l.Assignments[index] = h
}

// Find returns the connected host with a name, or nil.
func (l *List) Find(name string) *Host {
	for _, h := range l.Hosts {
		if h.Name == name && !h.LostNow() {
			return h
		}
	}
	return nil
}

// Add begins to connect to a host that a user asked for. from is the index of the peer that passed
// the order on.
func (l *List) Add(o wire.ScaleOrder, from int) error { return l.Connects.add(o, from) }

// Results returns the channel of added hosts that have connected or failed; nil for a nil list.
func (l *List) Results() <-chan Connect {
	if l == nil {
		return nil
	}
	return l.Connects.results
}

// AddConnected adds a newly connected host to the list. It replaces a lost host with the same name.
// It reports whether the order still waits for an answer.
func (l *List) AddConnected(a Connect) (waits bool) {
	waits = !l.Connects.pending[a.Order.Host].answered
	delete(l.Connects.pending, a.Order.Host)
	if a.Err != nil {
		return waits
	}
	for i, h := range l.Hosts {
		if h.Name == a.Host.Name {
			l.Hosts[i] = a.Host
			return waits
		}
	}
	l.Hosts = append(l.Hosts, a.Host)
	return waits
}

// Overdue returns the orders whose hosts take long to connect and whose users have no answer yet.
func (l *List) Overdue(now time.Time) []Connect {
	if l == nil {
		return nil
	}
	return l.Connects.overdue(now)
}

// Share returns the number of peers that a host has when n peers run, at least 1. The agent divides
// the host's cores by this number.
func (l *List) Share(h *Host, n int) int {
	here := 0
	for i, s := range l.Assignments {
		if s == h && i < n {
			here++
		}
	}
	return max(1, here)
}

// Beat sends the heartbeat to the agents if it is due.
func (l *List) Beat(now time.Time) {
	if l == nil || now.Before(l.next) {
		return
	}
	l.next = now.Add(wire.BeatPeriod)
	for _, h := range l.Hosts {
		h.beat()
	}
}

// CutOff ends the connections after hangUpPeriod if they have not ended by themselves, so that an
// unresponsive host does not delay the launcher.
func (l *List) CutOff() {
	if l == nil {
		return
	}
	for _, h := range l.Hosts {
		h.cutOffSoon()
	}
}

// HangUp ends the agents on all hosts and waits for them.
func (l *List) HangUp() {
	if l == nil {
		return
	}
	l.Connects.stop()
	var work sync.WaitGroup
	for _, h := range l.Hosts {
		work.Go(h.hangUp)
	}
	work.Wait()
}

// Broadcast sends a message to all hosts. It accepts a nil list.
func (l *List) Broadcast(m wire.Message) {
	if l == nil {
		return
	}
	for _, h := range l.Hosts {
		h.send(m)
	}
}
