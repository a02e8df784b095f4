package member_test

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"

	"github.com/elrun/elrun/elastic/member"
)

// The simulator runs a group of machines in one goroutine. All random choices come from one seed,
// so a seed replays exactly. It simulates the network, the failure detectors and the launchers. The
// faults are in simplan_test.go, the checks in simcheck_test.go.

// unit is the simulator's unit of time; a tick has tickUnits units.
type unit int

const tickUnits unit = 10

// mode is the rule under which a seed runs.
type mode int

const (
	majority mode = iota // certain deaths are unknown
	certain              // launchers report the deaths of their own peers
	sole                 // one launcher reports every death
	anyone               // --quorum any
)

func (m mode) String() string { return [...]string{"majority", "certain", "sole", "any"}[m] }

// node is one peer of the simulator.
type node struct {
	id       member.ID
	index    int
	launcher int
	m        *member.Machine
	alive    bool
	leaving  bool
	lost     bool // its last notice of the quorum was QuorumLost
	out      bool // its machine gave the notice Left or Fenced
	view     member.View
	told     map[*node]bool // suspicions that were reported and not withdrawn
}

func (n *node) inside() bool { return n.alive && !n.out && n.view.Epoch > 0 }

// fakeKeys are the keys of a peer. They are not secret: no peer in the simulator forges signatures.
type fakeKeys member.ID

func (f fakeKeys) Sign(text []byte) []byte {
	h := fnv.New64a()
	h.Write([]byte(f))
	h.Write(text)
	return h.Sum(nil)
}

func (f fakeKeys) Verify(id member.ID, text, signature []byte) bool {
	return bytes.Equal(fakeKeys(id).Sign(text), signature)
}

// happening is a planned event of the simulator.
type happening struct {
	at  unit
	seq int // breaks ties by order of creation, so that replays are exact
	do  func()
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last].do = nil
	*a = (*a)[:last]
	return x
}

// world is the state of one run of the simulator.
type world struct {
	rng    *rand.Rand
	mode   mode
	now    unit
	seq    int
	agenda agenda
	nodes  []*node
	byID   map[member.ID]*node

	cut      map[[2]*node]bool // messages from the first to the second are lost
	slander  map[[2]*node]bool // the first suspects the second without a reason
	loss     float64
	twice    float64 // share of messages that arrive twice
	delay    unit    // shortest delay
	lag      unit    // longest delay in addition, except for stragglers
	straggle float64 // share of messages that take ten times as long
	codec    bool    // messages pass through their encoding
	direct   int     // Config.Direct and Config.Fan; 0 for the defaults
	fan      int
	notice   unit // longest time until a detector notices a change of reachability
	quiet    bool // the faults have ended
	crashes  int  // of nodes that were not out

	messages int
	most     int // largest number of messages of a run
	ticking  bool
	beats    int // number of Status messages sent by the clock
	watch    int // detectors watch only this many nodes to each side; 0 for all
	checks   *checks
	failure  string
	trace    func(format string, args ...any) // may be nil
}

// after plans a call of do after the time d.
func (w *world) after(d unit, do func()) {
	w.seq++
	heap.Push(&w.agenda, happening{w.now + d, w.seq, do})
}

// upTo returns a random time from 1 to d.
func (w *world) upTo(d unit) unit { return 1 + unit(w.rng.IntN(int(d))) }

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		w.trace("%6d.%d "+format, append([]any{w.now / tickUnits, w.now % tickUnits}, args...)...)
	}
}

// fail ends the run with its first failure.
func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		w.say("FAILED: %s", w.failure)
	}
}

// runUntil runs the planned events until the time is reached or a check has failed.
func (w *world) runUntil(end unit) {
	for w.failure == "" && len(w.agenda) > 0 && w.agenda[0].at <= end {
		h := heap.Pop(&w.agenda).(happening)
		w.now = h.at
		h.do()
	}
	w.now = max(w.now, end)
}

// add starts a node with a machine.
func (w *world) add(n *node) {
	n.index, n.alive = len(w.nodes), true
	n.told = make(map[*node]bool)
	w.nodes = append(w.nodes, n)
	w.byID[n.id] = n
	if w.mode == sole {
		n.m.Step(member.Sole{On: true})
	}
	w.drain(n)
	var tick func()
	tick = func() {
		if n.alive {
			w.ticking = true
			n.m.Tick()
			w.drain(n)
			w.ticking = false
			if w.mode == anyone && w.chance(0.02) {
				w.step(n, member.Stable{Steps: uint64(w.now / tickUnits)})
			}
			w.after(tickUnits, tick)
		}
	}
	w.after(w.upTo(tickUnits), tick)
}

// step passes an event to a node.
func (w *world) step(n *node, e member.Event) {
	if !n.alive {
		return
	}
	if w.trace != nil {
		if r, ok := e.(member.Received); ok {
			w.say("%s <- %s", n.id, show(r.Message))
		} else {
			w.say("%s %T%v", n.id, e, e)
		}
	}
	n.m.Step(e)
	w.drain(n)
}

// directVotes returns the number of votes of the longest proof that goes with its change.
func (w *world) directVotes() int { return cmp.Or(w.direct, 64) }

// drain carries out the outputs of a machine.
func (w *world) drain(n *node) {
	r := n.m.Ready()
	for _, v := range r.Views {
		w.say("%s enters %v (%v)", n.id, v, v.Reason)
		w.checks.entered(w, n, v)
		n.view = v
	}
	for _, note := range r.Notices {
		w.say("%s says %v %s", n.id, note.Kind, note.Why)
		w.noticed(n, note)
	}
	for _, msg := range r.Messages {
		w.checks.sent(w, n, msg)
		w.send(n, msg)
	}
	if len(r.Views) > 0 {
		w.detectFor(n)
	}
}

// noticed handles a notice as the owner of a machine would.
func (w *world) noticed(n *node, note member.Notice) {
	switch note.Kind {
	case member.Asked:
		w.after(w.upTo(3*tickUnits), func() { w.step(n, member.Admit{Request: note.Request}) })
	case member.QuorumLost:
		n.lost = true
	case member.QuorumBack:
		n.lost = false
	case member.Decided:
		w.checks.decided(w, n)
	case member.Left, member.Fenced:
		n.out = true
		if note.Kind == member.Left && !n.leaving {
			w.fail("%s left without having asked for it", n.id)
		}
		w.after(w.upTo(60*tickUnits), func() { w.endSettled(n, note.Kind == member.Fenced) })
	}
}

// send plans the arrivals of a message: one, two or none.
func (w *world) send(n *node, msg member.Message) {
	if w.messages++; w.messages > w.most {
		w.fail("more than %d messages", w.most)
	}
	if w.ticking && msg.Kind == member.Status {
		w.beats++
	}
	to := w.byID[msg.To]
	if msg.From != n.id || to == nil || to == n {
		w.fail("%s sends a message from %q to %q", n.id, msg.From, msg.To)
		return
	}
	if w.codec {
		msg = w.throughCodec(msg)
	}
	copies := 1
	if w.chance(w.loss) {
		copies = 0
	} else if w.chance(w.twice) {
		copies = 2
	}
	for range copies {
		d := w.delay + w.upTo(w.lag)
		if w.chance(w.straggle) {
			d *= 10
		}
		w.after(d, func() {
			// A cut link also loses messages in flight.
			if !w.cut[[2]*node{n, to}] {
				w.checks.arrived(to, msg)
				w.step(to, member.Received{Message: msg})
			}
		})
	}
}

// throughCodec encodes and decodes a message.
func (w *world) throughCodec(msg member.Message) member.Message {
	got, err := member.Decode(member.Encode(nil, msg))
	got.From, got.To = msg.From, msg.To
	if err != nil {
		w.fail("%s: %v", show(msg), err)
	} else if w.trace != nil && msg.Report == nil && !reflect.DeepEqual(got, msg) {
		w.say("note: %s is decoded as %s", show(msg), show(got))
	}
	return got
}

// show describes a message in one line.
func show(m member.Message) string {
	s := fmt.Sprintf("%s %v epoch %d/%.2x", m.From, m.Kind, m.Epoch, m.View)
	switch m.Kind {
	case member.Prepare, member.Accepted:
		s += fmt.Sprintf(" %v", m.Ballot)
	case member.Accept:
		s += fmt.Sprintf(" %v", m.Ballot)
	case member.Promise, member.Reject:
		s += fmt.Sprintf(" %v seen %v", m.Ballot, m.Seen)
	case member.Chain:
		s += fmt.Sprintf(" after %.2x %v", m.After, m.Changes)
		if m.Base != nil {
			s += fmt.Sprintf(" base %v key %v", *m.Base, m.Key)
		}
	}
	if m.Change != nil {
		s += fmt.Sprintf(" (%v)", *m.Change)
	}
	if m.Report != nil {
		s += showReport(*m.Report)
	}
	return s
}

// showReport lists the content of a report.
func showReport(r member.Report) string {
	s := ""
	if len(r.Unreachable) > 0 {
		s += fmt.Sprintf(" unreachable %v", r.Unreachable)
	}
	if len(r.Dead) > 0 {
		s += fmt.Sprintf(" dead %v", r.Dead)
	}
	if r.Leaving {
		s += " leaving"
	}
	if r.Renew {
		s += " renew"
	}
	for _, j := range r.Joins {
		s += fmt.Sprintf(" admits %s at %d", j.Member.ID, j.At)
	}
	return s
}

// reachable reports whether a can exchange messages with b. A detector dials the other peer, which
// fails even if messages are lost in only one direction.
func (w *world) reachable(a, b *node) bool {
	return b.alive && !w.cut[[2]*node{a, b}] && !w.cut[[2]*node{b, a}] && !w.slander[[2]*node{a, b}]
}

// detectFor plans that a node's detector checks all others soon.
func (w *world) detectFor(n *node) {
	for _, o := range w.nodes {
		if o != n {
			w.detect(n, o)
		}
	}
}

// detect plans that n's detector checks o soon, and reports a change to the machine.
func (w *world) detect(n, o *node) {
	if d := n.index - o.index; w.watch > 0 && (d > w.watch || d < -w.watch) {
		return
	}
	w.after(w.upTo(w.notice), func() {
		suspect := !w.reachable(n, o)
		if !n.alive || n.told[o] == suspect {
			return
		}
		n.told[o] = suspect
		if suspect {
			w.step(n, member.Suspect{Peer: o.id, Gone: !o.alive && w.rng.IntN(2) == 0})
		} else {
			w.step(n, member.Trust{Peer: o.id})
		}
	})
}

// detectAll plans that every detector checks every other node soon.
func (w *world) detectAll() {
	for _, n := range w.nodes {
		if n.alive {
			w.detectFor(n)
		}
	}
}
