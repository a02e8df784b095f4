package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

const (
	// clockSlack is the largest accepted clock offset of a host. With a larger offset event logs
	// are hard to read, and tickets may be refused.
	clockSlack = 2 * time.Second
)

// Hosts is launch.DoctorHosts.
func Hosts(ctx context.Context, r spec.Remote) ([]spec.Check, error) {
	if len(r.Hosts) == 0 {
		return nil, fmt.Errorf("launch: %w: no hosts", spec.ErrOptions)
	}
	r.Defaults()
	plan, err := hosts.PlanFor(&spec.Options{Remote: spec.Remote{SSH: r.SSH, Copy: r.Copy, ConnectTimeout: r.ConnectTimeout}}, "")
	if err != nil {
		return nil, err
	}
	plan.Begin.Copy = false // no program to copy
	l := &hosts.List{}
	// The hosts connect and run their checks concurrently.
	all := make([][]spec.Check, len(r.Hosts))
	connected := make([]*hosts.Host, len(r.Hosts))
	var work sync.WaitGroup
	for i, h := range r.Hosts {
		connected[i] = hosts.NewHost(h, nil)
		work.Go(func() {
			if err := connected[i].Connect(ctx, plan); err != nil {
				all[i] = []spec.Check{{Level: spec.Fail, Name: h.Name, Found: strings.TrimPrefix(err.Error(), "host "+h.Name+": ")}}
				connected[i] = nil
				return
			}
			all[i] = examine(connected[i])
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// Only connected hosts can test the connections between them.
	l.Hosts = slices.DeleteFunc(connected, func(h *hosts.Host) bool { return h == nil })
	defer l.HangUp()
	return slices.Concat(slices.Concat(all...), pairs(l)), err
}

// examine returns the checks of Doctor on the host, and a check of its clock.
func examine(h *hosts.Host) []spec.Check {
	named := func(c spec.Check) spec.Check {
		c.Name = h.Name + ": " + c.Name
		return c
	}
	begun := time.Now()
	// begun and the time of the answer enclose the time at which the host read its clock.
	f, err := h.Request(wire.Message{Order: wire.Order{Doctor: true}}, func(f wire.Message) bool { return f.Findings != nil })
	if err != nil {
		return []spec.Check{named(spec.Check{Level: spec.Fail, Name: "doctor", Found: err.Error()})}
	}
	out := []spec.Check{named(spec.Check{Level: spec.OK, Name: "system", Found: fmt.Sprintf("%s on %s", wire.ClipNote(h.Info.Host), wire.ClipNote(h.Info.System))}),
		named(checkClock(f.Findings.Clock, begun, time.Now()))}
	for _, c := range f.Findings.Checks {
		out = append(out, named(c))
	}
	return out
}

// checkClock judges the clock of a host. there is the time by that clock, read between the times
// asked and answered by the clock of this host.
func checkClock(there, asked, answered time.Time) spec.Check {
	c := spec.Check{Level: spec.OK, Name: "clock", Found: "as here"}
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
		c.Level, c.Found, c.Advice = spec.Warn, fmt.Sprintf("%v off", off.Round(time.Millisecond)), "run a time service there (chrony, systemd-timesyncd)"
	}
	return c
}

// pairs returns a check for each direction of each pair of hosts, because a firewall may let
// connections through in one direction only. It takes at most about probePeriod, because all hosts
// try all other hosts at the same time.
func pairs(l *hosts.List) []spec.Check {
	results, errs := l.TryAll()
	var out []spec.Check
	for i, h := range l.Hosts {
		if errs[i] != nil {
			out = append(out, spec.Check{Level: spec.Fail, Name: h.Name, Found: errs[i].Error()})
			continue
		}
		for k, o := range l.Hosts {
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
func checkDirection(from, to, why string, failed, back bool) spec.Check {
	c := spec.Check{Level: spec.OK, Name: from + " -> " + to, Found: "connects"}
	switch {
	case failed && back:
		c.Level, c.Found, c.Advice = spec.Fail, wire.ClipNote(why), "let TCP through between them; until then a third host to which both can connect relays"
	case failed:
		c.Level, c.Found, c.Advice = spec.Warn, wire.ClipNote(why), "the other direction is enough"
	}
	return c
}

// minMTU is the packet size in bytes that every link must support (RFC 8200). Below it headers
// take more time than data.
const minMTU = 1280

// checkPath adds the round-trip time and the MTU of a working connection to its check.
func checkPath(c spec.Check, w wire.LinkQuality) spec.Check {
	c.Found += fmt.Sprintf(", round trip %.2f ms", float64(w.RTT)/float64(time.Millisecond))
	if w.MTU > 0 {
		c.Found += fmt.Sprintf(", packets up to %d bytes", w.MTU)
	}
	if w.MTU > 0 && w.MTU < minMTU {
		c.Level, c.Advice = spec.Warn, "raise the MTU of the interface or of the tunnel between the two hosts, unless the MTU is low on purpose"
	}
	return c
}
