package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// doctorPeriod is the time limit of the checks of one host.
	doctorPeriod = 20 * time.Second
	// clockSlack is the largest accepted clock offset of a host. With a larger offset event logs
	// are hard to read, and tickets may be refused.
	clockSlack = 2 * time.Second
)

// DoctorHosts runs Doctor on each of r.Hosts and tests whether each host can connect to every other
// host. Srun, Dir and Detach have no effect. An unusable host is a failed Check; an error means
// wrong options.
func DoctorHosts(ctx context.Context, r Remote) ([]Check, error) {
	if len(r.Hosts) == 0 {
		return nil, fmt.Errorf("launch: %w: no hosts", ErrOptions)
	}
	r.defaults()
	plan, err := (&Options{Remote: Remote{SSH: r.SSH, Copy: r.Copy, ConnectTimeout: r.ConnectTimeout}}).plan("")
	if err != nil {
		return nil, err
	}
	plan.begin.Copy = false // no program to copy
	l := &hostList{}
	// The hosts connect and run their checks concurrently.
	all := make([][]Check, len(r.Hosts))
	hosts := make([]*remoteHost, len(r.Hosts))
	var work sync.WaitGroup
	for i, h := range r.Hosts {
		hosts[i] = newRemoteHost(h, nil)
		work.Go(func() {
			if err := hosts[i].connect(ctx, plan); err != nil {
				all[i] = []Check{{Level: Fail, Name: h.Name, Found: strings.TrimPrefix(err.Error(), "host "+h.Name+": ")}}
				hosts[i] = nil
				return
			}
			all[i] = hosts[i].examine()
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// Only connected hosts can test the connections between them.
	l.hosts = slices.DeleteFunc(hosts, func(h *remoteHost) bool { return h == nil })
	defer l.hangUp()
	return slices.Concat(slices.Concat(all...), l.pairs()), err
}

// examine returns the checks of Doctor on the host, and a check of its clock.
func (h *remoteHost) examine() []Check {
	named := func(c Check) Check {
		c.Name = h.Name + ": " + c.Name
		return c
	}
	begun := time.Now()
	// begun and the time of the answer enclose the time at which the host read its clock.
	f, err := h.request(frame{order: order{Doctor: true}}, func(f frame) bool { return f.Findings != nil })
	if err != nil {
		return []Check{named(Check{Level: Fail, Name: "doctor", Found: err.Error()})}
	}
	out := []Check{named(Check{Level: OK, Name: "system", Found: fmt.Sprintf("%s on %s", clipNote(h.info.Host), clipNote(h.info.System))}),
		named(checkClock(f.Findings.Clock, begun, time.Now()))}
	for _, c := range f.Findings.Checks {
		out = append(out, named(c))
	}
	return out
}

// checkClock judges the clock of a host. there is the time by that clock, read between the times
// asked and answered by the clock of this host.
func checkClock(there, asked, answered time.Time) Check {
	c := Check{Level: OK, Name: "clock", Found: "as here"}
	// The clock of the host is right if its time lies between the two times of this host. Otherwise
	// the distance to the nearer of the two times is the smallest possible error of the clock.
	off := time.Duration(0)
	switch {
	case there.Before(asked):
		off = there.Sub(asked)
	case there.After(answered):
		off = there.Sub(answered)
	}
	if off.Abs() > clockSlack {
		c.Level, c.Found, c.Advice = Warn, fmt.Sprintf("%v off", off.Round(time.Millisecond)), "run a time service there (chrony, systemd-timesyncd)"
	}
	return c
}

// pairs returns a check for each direction of each pair of hosts, because a firewall may let
// connections through in one direction only. It takes at most about probePeriod, because all hosts
// try all other hosts at the same time.
func (l *hostList) pairs() []Check {
	results, errs := l.tryAll()
	var out []Check
	for i, h := range l.hosts {
		if errs[i] != nil {
			out = append(out, Check{Level: Fail, Name: h.Name, Found: errs[i].Error()})
			continue
		}
		for k, o := range l.hosts {
			if k == i {
				continue
			}
			why, failed := results[i].Failed[o.Name]
			_, back := results[k].Failed[h.Name]
			c := checkDirection(h.Name, o.Name, why, failed, back)
			if w, ok := results[i].Links[o.Name]; ok && !failed {
				c = checkPath(c, w)
			}
			out = append(out, c)
		}
	}
	return out
}

// checkDirection judges the connection from one host to another. failed reports whether it failed,
// why is the cause, and back reports whether the connection in the opposite direction failed as
// well.
func checkDirection(from, to, why string, failed, back bool) Check {
	c := Check{Level: OK, Name: from + " -> " + to, Found: "connects"}
	switch {
	case failed && back:
		c.Level, c.Found, c.Advice = Fail, clipNote(why), "let TCP through between them; until then a third host to which both can connect relays"
	case failed:
		c.Level, c.Found, c.Advice = Warn, clipNote(why), "the other direction is enough"
	}
	return c
}

// minMTU is the packet size in bytes that every link must support (RFC 8200). Below it headers
// take more time than data.
const minMTU = 1280

// checkPath adds the round-trip time and the MTU of a working connection to its check.
func checkPath(c Check, w linkQuality) Check {
	c.Found += fmt.Sprintf(", round trip %.2f ms", float64(w.RTT)/float64(time.Millisecond))
	if w.MTU > 0 {
		c.Found += fmt.Sprintf(", packets up to %d bytes", w.MTU)
	}
	if w.MTU > 0 && w.MTU < minMTU {
		c.Level, c.Advice = Warn, "raise the MTU of the interface or of the tunnel between the two hosts, unless the MTU is low on purpose"
	}
	return c
}
