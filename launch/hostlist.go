package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// hostList holds the hosts of a job and the assignment of peers to them. A nil list means that
// peers run on this host.
type hostList struct {
	hosts       []*remoteHost // connected hosts and hosts whose connection was lost
	assignments []*remoteHost // by index of the peer; nil for a peer without a fixed host
	next        time.Time     // time of the next heartbeat
	connects    *hostConnects
}

// connect connects to all hosts at the same time. It reports hosts that fail; the job runs on the
// others if they have room for MinPeers peers.
func (r *runner) connect(ctx context.Context) error {
	if len(r.o.Remote.Hosts) == 0 {
		return nil
	}
	p, err := r.o.plan(r.procs.path)
	if err != nil {
		return err
	}
	// Connect to all hosts concurrently, and keep those that answer.
	all := make([]*remoteHost, len(r.o.Remote.Hosts))
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, h := range r.o.Remote.Hosts {
		all[i] = newRemoteHost(h, r.procs.orphans)
		work.Go(func() { errs[i] = all[i].connect(ctx, p) })
	}
	work.Wait()
	hosts := &hostList{connects: newHostConnects(p, r.procs.orphans)}
	r.procs.hosts = hosts
	var failed []error
	for i, h := range all {
		if errs[i] != nil {
			failed = append(failed, errs[i])
			continue
		}
		hosts.hosts = append(hosts.hosts, h)
	}
	// Of these, leave out hosts that cannot reach each other.
	failed = append(failed, hosts.dropUnreachable(!wide(r.o.Network.Listen), r.o.Network.Relay == "members")...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Assign peers to slots: the job needs room for its minimum.
	hosts.assign(r.o.Peers)
	room := len(hosts.assignments)
	if room < max(1, r.o.Membership.MinPeers) {
		if len(hosts.hosts) > 0 {
			failed = append(failed, fmt.Errorf("the usable hosts have room for %s, and --min-peers wants %d: name more hosts, or a lower minimum", plural(room, "peer", "peers"), r.o.Membership.MinPeers))
		}
		return fmt.Errorf("launch: %s", joinErrors(failed))
	}
	for _, err := range failed {
		r.report.printf("%v; the job runs on the other hosts", err)
	}
	// From here on the number of peers is known, and the frames of the agents are handled.
	r.peers.want = room
	for _, h := range hosts.hosts {
		h.run(r.report.console.say)
	}
	return nil
}

// wide reports whether peers listen at all addresses of their hosts, as the probes do.
func wide(listen string) bool { return listen == listenAuto || listen == listenAll }

// joinErrors returns all errors in one line; errors.Join would separate them by line ends.
func joinErrors(errs []error) string {
	var words []string
	for _, err := range errs {
		words = append(words, err.Error())
	}
	return strings.Join(words, "; ")
}

// dropUnreachable leaves out hosts until each pair of the remaining hosts can connect in at least
// one direction or, if relays is set, through a third host. It tries to leave out few hosts, and
// returns an error for each of them. If others is set, peers do not listen at the addresses of the
// probes, and dropUnreachable does nothing.
func (l *hostList) dropUnreachable(others, relays bool) (failed []error) {
	if others || len(l.hosts) < 2 {
		return nil
	}
	advice := ", or use --relay members"
	if relays {
		advice = " (no other host connects to both)"
	}
	results, errs := l.tryAll()
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
		name, other := l.hosts[worst].Name, l.hosts[with[0]].Name
		failed = append(failed, fmt.Errorf("host %s: cannot connect with host %s (%s): let TCP through%s", name, other, results[worst].Failed[other], advice))
		out[worst] = true
	}
	// End the agents of the hosts that were left out.
	var rest []*remoteHost
	for i, h := range l.hosts {
		if out[i] {
			h.hangUp()
			continue
		}
		rest = append(rest, h)
	}
	l.hosts = rest
	return failed
}

// tryAll makes each host try to connect to every other host. It returns the result of each host,
// and the errors of hosts that could not try.
func (l *hostList) tryAll() (results []probeResult, errs []error) {
	results, errs = make([]probeResult, len(l.hosts)), make([]error, len(l.hosts))
	if len(l.hosts) < 2 {
		return results, errs
	}
	var work sync.WaitGroup
	for i, h := range l.hosts {
		// Each host tries the addresses of all other hosts. So two hosts try both directions: a
		// firewall may block only one direction.
		var rest []hostAddrs
		for k, o := range l.hosts {
			if k != i {
				rest = append(rest, hostAddrs{o.Name, o.addrs})
			}
		}
		work.Go(func() { results[i], errs[i] = h.reachable(rest) })
	}
	work.Wait()
	return results, errs
}

// mostCut returns the host with the largest number of hosts that it cannot connect to, and these
// hosts. If several have the same number, it returns the last one.
func (l *hostList) mostCut(results []probeResult, out map[int]bool, relays bool) (mostCut int, with []int) {
	connects := func(i, k int) bool {
		_, there := results[i].Failed[l.hosts[k].Name]
		_, back := results[k].Failed[l.hosts[i].Name]
		return !out[i] && !out[k] && !(there && back)
	}
	for i := range l.hosts {
		var cut []int
		for k := range l.hosts {
			if k == i || out[i] || out[k] || connects(i, k) {
				continue
			}
			// With relays two hosts need no connection of their own if a third host connects to
			// both.
			between := func(m int) bool { return m != i && m != k && connects(i, m) && connects(m, k) }
			if !relays || !anyOf(len(l.hosts), between) {
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

// assign assigns peers to the slots of the hosts, in order. most bounds the total number of peers;
// 0 means no bound.
func (l *hostList) assign(most int) {
	for _, h := range l.hosts {
		if h.Slots == 0 {
			h.Slots = max(1, h.info.Cores)
		}
		for range h.Slots {
			if most == 0 || len(l.assignments) < most {
				l.assignments = append(l.assignments, h)
			}
		}
	}
}

// hostFor returns the host for a peer: its assigned host or, if there is none or it was lost, the
// host with the fewest peers per slot.
func (l *hostList) hostFor(index int, running map[int]*child) *remoteHost {
	// With a nil list all peers run on this host.
	if l == nil {
		return nil
	}
	if h := l.assignedHost(index); h != nil && !h.lostNow() {
		return h
	}
	// The load of a host is its number of peers per slot, this peer included. A lost host is the
	// last choice.
	load := func(h *remoteHost) float64 {
		n := 1
		for _, c := range running {
			if c.host == h.Name {
				n++
			}
		}
		if h.lostNow() {
			n += maxPeers * maxPeers
		}
		return float64(n) / float64(h.Slots)
	}
	return slices.MinFunc(l.hosts, func(a, b *remoteHost) int {
		switch x, y := load(a), load(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// assignedHost returns the assigned host of a peer, or nil.
func (l *hostList) assignedHost(index int) *remoteHost {
	if index >= len(l.assignments) {
		return nil
	}
	return l.assignments[index]
}

// assignTo assigns a peer to a host.
func (l *hostList) assignTo(index int, h *remoteHost) {
	for len(l.assignments) <= index {
		l.assignments = append(l.assignments, nil)
	}
	l.assignments[index] = h
}

// find returns the connected host with a name, or nil.
func (l *hostList) find(name string) *remoteHost {
	for _, h := range l.hosts {
		if h.Name == name && !h.lostNow() {
			return h
		}
	}
	return nil
}

// add begins to connect to a host that a user asked for. from is the index of the peer that passed
// the order on.
func (l *hostList) add(o scaleOrder, from int) error { return l.connects.add(o, from) }

// results returns the channel of added hosts that have connected or failed; nil for a nil list.
func (l *hostList) results() <-chan hostConnect {
	if l == nil {
		return nil
	}
	return l.connects.results
}

// addConnected adds a newly connected host to the list. It replaces a lost host with the same name.
// It reports whether the order still waits for an answer.
func (l *hostList) addConnected(a hostConnect) (waits bool) {
	waits = !l.connects.pending[a.order.Host].answered
	delete(l.connects.pending, a.order.Host)
	if a.err != nil {
		return waits
	}
	for i, h := range l.hosts {
		if h.Name == a.host.Name {
			l.hosts[i] = a.host
			return waits
		}
	}
	l.hosts = append(l.hosts, a.host)
	return waits
}

// overdue returns the orders whose hosts take long to connect and whose users have no answer yet.
func (l *hostList) overdue(now time.Time) []hostConnect {
	if l == nil {
		return nil
	}
	return l.connects.overdue(now)
}

// share returns the number of peers that a host has when n peers run, at least 1. The agent divides
// the host's cores by this number.
func (l *hostList) share(h *remoteHost, n int) int {
	here := 0
	for i, s := range l.assignments {
		if s == h && i < n {
			here++
		}
	}
	return max(1, here)
}

// beat sends the heartbeat to the agents if it is due.
func (l *hostList) beat(now time.Time) {
	if l == nil || now.Before(l.next) {
		return
	}
	l.next = now.Add(beatPeriod)
	for _, h := range l.hosts {
		h.beat()
	}
}

// cutOff ends the connections after hangUpPeriod if they have not ended by themselves, so that an
// unresponsive host does not delay the launcher.
func (l *hostList) cutOff() {
	if l == nil {
		return
	}
	for _, h := range l.hosts {
		h.cutOffSoon()
	}
}

// hangUp ends the agents on all hosts and waits for them.
func (l *hostList) hangUp() {
	if l == nil {
		return
	}
	l.connects.stop()
	var work sync.WaitGroup
	for _, h := range l.hosts {
		work.Go(h.hangUp)
	}
	work.Wait()
}
