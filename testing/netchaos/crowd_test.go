package netchaos

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// crowd is a job with several peers on each host.
type crowd struct {
	*job
	counts []int // number of peers on each host
}

// crowded returns the settings of a job with the given number of peers, whose steps take about 200 ms.
func crowded(batch, peers int) settings {
	return settings{pace: 200 * time.Millisecond * time.Duration(peers) / time.Duration(batch), batch: batch}
}

// newCrowd starts a job with the given number of peers on each host. It starts nothing on hosts without peers.
func newCrowd(t *testing.T, l *lab, set settings, counts ...int) *crowd {
	t.Helper()
	c := &crowd{job: newJob(t, l, set), counts: counts}
	// The first step waits for half of the peers, so that fewer peers have to copy the state.
	most := fmt.Sprint(c.size() / 2)
	c.elrun(t, 0, "-n", fmt.Sprint(counts[0]), "--name", c.Name, "--min-peers", most)
	var ticket string
	process.Until(t, "a ticket", func() bool { ticket = c.tryTicket(0); return ticket != "" })
	for host, n := range counts {
		if host > 0 && n > 0 {
			c.elrun(t, host, "join", ticket, "-n", fmt.Sprint(n), "--min-peers", most)
		}
	}
	return c
}

// size returns the number of peers.
func (c *crowd) size() int {
	n := 0
	for _, count := range c.counts {
		n += count
	}
	return n
}

// here returns the IDs, by index, of the peers on a host that have committed a step in an epoch
// after a time.
func (c *crowd) here(t *testing.T, host int, epoch uint64, at time.Time) map[int]string {
	t.Helper()
	ids := map[int]string{}
	for _, e := range slices.Backward(c.elruns[host].Read(t).Events) {
		if _, ok := e.Body.(event.Step); ok && e.Epoch == epoch && e.Time.After(at) {
			ids[e.Index] = e.Peer
		}
		if e.Epoch < epoch && e.Epoch > 0 {
			break
		}
	}
	return ids
}

// untilWhole waits until all peers are voters of one view, and each peer has committed a step in
// this view after a time. It returns the IDs of the peers by host and index.
func (c *crowd) untilWhole(t *testing.T, at time.Time) []map[int]string {
	t.Helper()
	var ids []map[int]string
	lack := ""
	whole := func() bool {
		v, epoch := c.latest(t)
		if lack = fmt.Sprintf("epoch %d has %d members, %d of which vote", epoch, len(v.Members), len(v.Voters)); len(v.Voters) != c.size() {
			return false
		}
		ids = make([]map[int]string, len(c.counts))
		for host, n := range c.counts {
			if n > 0 {
				ids[host] = c.here(t, host, epoch, at)
			}
			if len(ids[host]) != n {
				lack = fmt.Sprintf("host %d: %d of %d peers have taken a step in epoch %d", host, len(ids[host]), n, epoch)
				return false
			}
		}
		return true
	}
	if !process.Holds(t.Context(), limit, whole) {
		t.Fatalf("the group is not whole after %v: %s", limit, lack)
	}
	return ids
}

// latest returns the latest view that any peer has reported, and its epoch.
func (c *crowd) latest(t *testing.T) (v event.View, epoch uint64) {
	t.Helper()
	for _, e := range c.elruns {
		if e != nil && e.Read(t).ViewEvent.Epoch > epoch {
			v, epoch = e.View, e.ViewEvent.Epoch
		}
	}
	return v, epoch
}

// untilSteps waits until the peers on some hosts have committed a few more steps.
func (c *crowd) untilSteps(t *testing.T, hosts []int) {
	t.Helper()
	before := c.steps(t, hosts)
	process.Until(t, "further steps", func() bool { return c.steps(t, hosts) > before+3 })
}

// out waits until all peers except the victims have a view without the victims, in the events since a time. It returns the time of
// the last of these views. It ends the test if another peer is put out.
func (c *crowd) out(t *testing.T, ids []map[int]string, victims []string, since time.Time) time.Time {
	t.Helper()
	var out time.Time
	for host := range ids {
		for index, id := range ids[host] {
			if slices.Contains(victims, id) {
				continue
			}
			process.Until(t, fmt.Sprintf("a view without %v at peer %d of host %d", victims, index, host), func() bool {
				e, ok := first(t, c.elruns[host].journal, since, func(e event.Event, v event.View) bool {
					return e.Peer == id && !slices.ContainsFunc(victims, func(v2 string) bool { return slices.Contains(v.Members, v2) })
				})
				if ok && e.Time.After(out) {
					out = e.Time
				}
				if v, _ := c.latest(t); !ok && len(v.Members) > 0 && !slices.Contains(v.Members, id) {
					t.Fatalf("peer %d of host %d, %s, which lives, was put out beside %v", index, host, id, victims)
				}
				return ok
			})
		}
	}
	return out
}

// onlyOut fails the test if peers other than the victims were put out of the group after a time.
func (c *crowd) onlyOut(t *testing.T, ids []map[int]string, victims []string, since time.Time) {
	t.Helper()
	told := slices.Clone(victims)
	for host, e := range c.elruns {
		if e == nil {
			continue
		}
		for _, ev := range process.After[event.View](e.Read(t).Events, since) {
			if slices.Contains(victims, ev.Peer) {
				continue // a victim may have views of its own
			}
			for at, of := range ids {
				for index, id := range of {
					if !slices.Contains(told, id) && !slices.Contains(ev.Body.(event.View).Members, id) {
						told = append(told, id)
						t.Errorf("at host %d epoch %d is without %s, peer %d of host %d, which lives", host, ev.Epoch, id, index, at)
					}
				}
			}
		}
	}
}

// causes returns the reported causes for the loss of the victims, and how often each was reported.
func (c *crowd) causes(t *testing.T, victims []string, since time.Time) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, e := range c.elruns {
		if e == nil {
			continue
		}
		for _, ev := range process.After[event.Lost](e.Read(t).Events, since) {
			if body := ev.Body.(event.Lost); slices.Contains(victims, body.Who) && !slices.Contains(victims, ev.Peer) && body.Cause != "" {
				all[body.Cause]++
			}
		}
	}
	return all
}

// 32 peers run on eight hosts; in the short form six peers run on three. A peer is stopped, or a
// host is cut off. The other peers put these victims out, in the long form within two seconds. They
// report the cause, and put out no other peer.
func TestDetectMany(t *testing.T) {
	parallel(t)
	hosts, per := pick(3, 8), pick(2, 4)
	counts := slices.Repeat([]int{per}, hosts)
	set := crowded(60, hosts*per)
	set.flags = []string{"--restart", "1000"} // elrun kills a stopped peer and restarts it
	c := newCrowd(t, newLab(t, hosts), set, counts...)
	for _, f := range faults() {
		var all []time.Duration
		for run := range times(1, 8) {
			all = append(all, c.detect(t, f, run%hosts))
		}
		slices.Sort(all)
		t.Logf("%-10s  %d times: out after p50 %4d ms, worst %4d ms", f.name, len(all),
			all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
	}
	c.finish(t)
}

// detect makes a fault, and returns the time until all other peers had a view without the victims.
// If the fault stops a process, the victim is the first peer of the host. Otherwise all peers of
// the host are victims.
func (c *crowd) detect(t *testing.T, f fault, host int) time.Duration {
	t.Helper()
	ids := c.untilWhole(t, time.Now())
	victims := slices.Collect(maps.Values(ids[host]))
	if f.name == "stopped" {
		victims = []string{ids[host][0]}
	}
	at := time.Now()
	f.inject(t, c.job, host)
	struck := time.Now()
	took := c.out(t, ids, victims, at).Sub(struck) // negative if the views came before the end of inject
	if took > detection && flagged[bool]("long") { // only the long form has an idle machine
		t.Errorf("%s host %d: out after %v, want at most %v", f.name, host, took, detection)
	}
	var causes map[string]int
	process.Until(t, "a report of the cause", func() bool { // a peer reports the cause just after its view
		causes = c.causes(t, victims, at)
		return len(causes) > 0
	})
	c.untilSteps(t, others(len(ids), host))
	f.heal(t, c.job, host)
	healed := time.Now()
	c.untilWhole(t, healed)
	c.onlyOut(t, ids, victims, at)
	t.Logf("%-10s  host %d: out after %4d ms, %v, whole %4d ms after it is heard again", f.name, host,
		took.Milliseconds(), causes, time.Since(healed).Milliseconds())
	return took
}

// 64 and then 256 peers run on 16 hosts; in the short form five peers run on five hosts. One peer
// is killed, one peer joins from another host, and the link of one host is down for a time. Only
// the killed peer and the peers of that host are put out, and the peers of that host join again.
// Each sample counts once, and after each step the weights are the same as with a single process.
func TestManyHosts(t *testing.T) {
	parallel(t)
	for _, per := range pick([]int{1}, []int{4, 16}) {
		hosts := pick(5, 16)
		t.Run(fmt.Sprint(hosts*per), func(t *testing.T) { manyHosts(t, hosts, per) })
	}
}

// manyHosts is TestManyHosts with the given numbers of hosts and of peers on each host.
func manyHosts(t *testing.T, hosts, per int) {
	t.Helper()
	counts := append(slices.Repeat([]int{per}, hosts), 0)
	l := newLab(t, hosts+1)
	begun := time.Now()
	c := newCrowd(t, l, crowded(pick(60, 240), hosts*per), counts...)
	ids := c.untilWhole(t, time.Time{})
	t.Logf("%d peers are together after %v", c.size(), time.Since(begun).Round(time.Millisecond))

	killed := time.Now()
	victim := []string{ids[1][0]}
	process.Signal(t, c.peer(t, 1), syscall.SIGKILL)
	took := c.out(t, ids, victim, killed).Sub(killed)
	t.Logf("killed: the others have a view without it after %v, %v", took.Round(time.Millisecond), c.causes(t, victim, killed))
	c.counts[1]--

	joined := time.Now()
	c.join(t, hosts, 1, c.ticket(t, 0))
	c.counts[hosts]++
	c.untilWhole(t, joined)
	c.onlyOut(t, ids, victim, killed)
	t.Logf("joined: whole after %v", time.Since(joined).Round(time.Millisecond))

	ids = c.untilWhole(t, time.Now())
	cut, unheard := time.Now(), slices.Collect(maps.Values(ids[2]))
	command(t, "", "ip", "-n", l.hub, "link", "set", "p2", "down")
	t.Logf("cable pulled: the others have a view without it after %v", c.out(t, ids, unheard, cut).Sub(cut).Round(time.Millisecond))
	c.untilSteps(t, others(hosts, 1, 2))
	command(t, "", "ip", "-n", l.hub, "link", "set", "p2", "up")
	back := time.Now()
	c.untilWhole(t, back)
	c.onlyOut(t, ids, unheard, cut)
	t.Logf("cable back: whole after %v", time.Since(back).Round(time.Millisecond))
	c.finish(t)
}
