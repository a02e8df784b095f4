package simnet

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
)

// A frame goes from one member to another in these stages:
//
//	submit    if the sender's process is stopped, the frame is parked until it continues
//	transmit  the frame waits for its part of the bandwidth
//	launch    the frame is in flight for delay and lag
//	arrive    if the link is cut, the frame is held until the cut is healed
//	reorder   the frame waits for earlier frames of its pipe
//	deliver   if the receiver's process is stopped, frames for it are deferred until it continues
//
// All stages run under the network's mu, either in a call of the sender or in the goroutine of the clock.

// frame is the unit that a link carries. deliver is called, without locks, when the frame has arrived.
type frame struct {
	size    int // bytes, including the overhead
	deliver func()
	refuse  func()        // called instead of deliver if the receiver is dead; may be nil
	loose   bool          // later frames may overtake it; it has no sequence number
	process bool          // needs a running process; the host of a stopped process handles other frames
	final   bool          // sent by the host of a process that has died
	extra   time.Duration // additional delay
	seq     uint64        // sequence number in its pipe
}

// link is one direction between two members.
type link struct {
	net      *Network
	from, to elastic.ID
	random   *rand.Rand

	// Guarded by the network's mu.
	rules  [planes]*rule
	lanes  map[*rule]*lane
	pipes  []*pipe
	urgent [planes]*pipe     // for short frames that must not wait for room in a window
	last   [planes]time.Time // arrival time of the last frame in flight
}

// linkLocked returns the link between two members, and creates it on first use.
func (n *Network) linkLocked(from, to elastic.ID) *link {
	key := [2]elastic.ID{from, to}
	l := n.links[key]
	if l != nil {
		return l
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, string(from)+"\x00"+string(to)) // cannot fail
	l = &link{net: n, from: from, to: to, lanes: make(map[*rule]*lane),
		random: rand.New(rand.NewPCG(n.config.Seed, h.Sum64()))}
	n.links[key] = l
	n.order = append(n.order, l)
	for p := range planes {
		l.rules[p] = n.ruleLocked(from, to, p)
		l.urgent[p] = l.addPipeLocked(p, nil)
	}
	return l
}

// addPipeLocked adds a stream to the link, and removes streams that have ended.
func (l *link) addPipeLocked(plane Plane, from *stream) *pipe {
	l.pipes = slices.DeleteFunc(l.pipes, func(p *pipe) bool { return p.dead && p.idle() })
	p := &pipe{link: l, plane: plane, from: from}
	l.pipes = append(l.pipes, p)
	return p
}

// submitLocked sends a frame.
func (l *link) submitLocked(p *pipe, f frame) {
	if from := l.net.nodes[l.from]; !f.final {
		switch {
		case from.dead != nil || from.cause != nil:
			return
		case from.stopped:
			from.parked = append(from.parked, parked{p, f})
			return
		}
	}
	r := l.rules[p.plane]
	if r.link.Bandwidth <= 0 && len(p.queue) == 0 {
		l.departLocked(p, f, time.Now())
		return
	}
	p.queue = append(p.queue, f)
	if len(p.queue) == 1 {
		l.laneLocked(r).addLocked(p)
	}
}

// departLocked launches a frame for the first time, with a sequence number.
func (l *link) departLocked(p *pipe, f frame, now time.Time) {
	if !f.loose && !f.final {
		f.seq = p.sent
		p.sent++
	}
	l.launchLocked(p, f, now)
}

// launchLocked schedules the arrival of a frame that is launched at the time now.
func (l *link) launchLocked(p *pipe, f frame, now time.Time) {
	due := now.Add(l.delayLocked(p.plane) + f.extra)
	if !f.loose && due.Before(p.last) {
		due = p.last
	}
	if f.final && due.Before(l.last[p.plane]) {
		due = l.last[p.plane] // arrives after everything that the process has sent
	}
	if !f.loose {
		p.last = due
	}
	if due.After(l.last[p.plane]) {
		l.last[p.plane] = due
	}
	p.flying++
	l.net.clock.at(due, func() { l.arrive(p, f) })
}

// delayLocked draws the delay of a frame.
func (l *link) delayLocked(plane Plane) time.Duration {
	k := l.rules[plane].link
	d := k.Delay + l.drawLocked(k.Lag)
	if plane == Control {
		return d
	}
	for timeout := max(leastTimeout, 3*k.Delay); l.chanceLocked(k.Retransmit) && timeout < mostTimeout; timeout *= 2 {
		d += timeout
	}
	return d
}

// leastTimeout and mostTimeout bound the time after which a lost frame is sent again.
const (
	leastTimeout = 200 * time.Millisecond
	mostTimeout  = time.Minute
)

// drawLocked draws a duration from [0, d).
func (l *link) drawLocked(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(l.random.Int64N(int64(d)))
}

// chanceLocked returns true with probability p.
func (l *link) chanceLocked(p float64) bool { return p > 0 && l.random.Float64() < p }

// arrive handles the arrival of a frame: it delivers the frame, and frames that have waited for it.
func (l *link) arrive(p *pipe, f frame) {
	for _, call := range l.take(p, f) {
		call()
	}
}

// take does the part of arrive that needs the lock, and returns the calls that follow.
func (l *link) take(p *pipe, f frame) (calls []func()) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	p.flying--
	if n.cutLocked(l.from, l.to, p.plane) {
		if from := n.nodes[l.from]; from.dead == nil || f.final {
			p.held = append(p.held, f)
		}
		return nil
	}
	to := n.nodes[l.to]
	for _, f := range p.inOrder(f) {
		switch {
		case to == nil || to.take == nil && to.dead == nil:
			n.absent[l.to] = append(n.absent[l.to], f)
		case to.dead != nil:
			if f.refuse != nil {
				calls = append(calls, f.refuse)
			}
		case f.process && (to.stopped || len(to.deferred) > 0):
			to.deferred = append(to.deferred, f)
		default:
			calls = append(calls, f.deliver)
		}
	}
	return calls
}

// releaseLocked handles the end of a cut on the planes that are no longer cut. It launches the held
// frames again, and acknowledges the bytes that were read during the cut.
func (l *link) releaseLocked() {
	n := l.net
	for _, p := range l.pipes {
		if p.owed > 0 && !n.cutLocked(l.to, l.from, p.plane) {
			p.freeLocked(p.owed)
			p.owed = 0
		}
		if len(p.held) == 0 || n.cutLocked(l.from, l.to, p.plane) {
			continue
		}
		held := p.held
		p.held = nil
		start := time.Now().Add(l.drawLocked(n.config.Backoff))
		p.last = start
		for _, f := range held {
			l.launchLocked(p, f, start)
		}
	}
}

// dropLocked drops the frames that a dead sender has not yet put on the wire.
func (l *link) dropLocked() {
	for _, p := range l.pipes {
		p.queue, p.held = nil, slices.DeleteFunc(p.held, func(f frame) bool { return !f.final })
		p.dead = true
	}
}

// lane shares the bandwidth of one rule among the pipes of a link.
type lane struct {
	link   *link
	rate   int // bytes per second; 0 means no limit
	active []*pipe
	busy   bool
	free   time.Time // when the present quantum is transmitted
	over   bool      // a change of rules has replaced this lane
}

// quantum is the number of bytes of one pipe that are transmitted before bytes of the next pipe.
const quantum = 16 << 10

// laneLocked returns the lane of the rule r.
func (l *link) laneLocked(r *rule) *lane {
	if l.lanes[r] == nil {
		l.lanes[r] = &lane{link: l, rate: r.link.Bandwidth}
	}
	return l.lanes[r]
}

// addLocked adds a pipe that has frames to transmit.
func (l *lane) addLocked(p *pipe) {
	l.active = append(l.active, p)
	if !l.busy {
		if now := time.Now(); l.free.Before(now) {
			l.free = now
		}
		l.startLocked()
	}
}

// startLocked starts the transmission of the next quantum.
func (l *lane) startLocked() {
	for len(l.active) > 0 && len(l.active[0].queue) == 0 {
		l.active = l.active[1:] // the sender has died
	}
	l.busy = len(l.active) > 0
	if !l.busy {
		return
	}
	p := l.active[0]
	size := min(p.queue[0].size-p.through, quantum)
	if l.rate > 0 {
		l.free = l.free.Add(time.Duration(float64(size) / float64(l.rate) * float64(time.Second)))
	}
	l.link.net.clock.at(l.free, func() { l.end(p, size) })
}

// end is called when a quantum is transmitted.
func (l *lane) end(p *pipe, size int) {
	l.link.net.mu.Lock()
	defer l.link.net.mu.Unlock()
	if l.over {
		return
	}
	l.active = l.active[1:]
	if len(p.queue) > 0 {
		p.through += size
		if f := p.queue[0]; p.through >= f.size {
			shift(&p.queue)
			p.through = 0
			l.link.departLocked(p, f, l.free)
		}
	}
	if len(p.queue) > 0 {
		l.active = append(l.active, p)
	}
	l.startLocked()
}

// refreshLocked applies changed rules to the link, including frames that wait for bandwidth.
func (l *link) refreshLocked() {
	for _, a := range l.lanes {
		a.over = true
	}
	l.lanes = make(map[*rule]*lane)
	for p := range planes {
		l.rules[p] = l.net.ruleLocked(l.from, l.to, p)
	}
	for _, p := range l.pipes {
		p.through = 0
		if len(p.queue) > 0 {
			l.laneLocked(l.rules[p.plane]).addLocked(p)
		}
		p.freeLocked(0) // the window may have grown
	}
}
