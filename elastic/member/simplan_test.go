package member_test

import (
	"math/rand/v2"

	"github.com/elrun/elrun/elastic/member"
)

// The bounds of a run, in ticks.
const (
	faultTicks  = 300  // duration of the faults
	settleTicks = 1500 // time after the faults within which the group must be at rest
	lookTicks   = 25   // period of the checks for rest

	maxMessages = 20000 // in a run
)

// newWorld returns a group with a random plan of faults.
func newWorld(seed uint64, trace func(string, ...any)) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 0)), byID: make(map[member.ID]*node), trace: trace,
		cut: make(map[[2]*node]bool), slander: make(map[[2]*node]bool), checks: newChecks(), most: maxMessages,
	}
	w.mode = []mode{majority, majority, majority, majority, certain, certain, certain, sole, anyone, anyone}[w.rng.IntN(10)]
	w.loss = []float64{0, 0.05, 0.2}[w.rng.IntN(3)]
	w.twice = []float64{0, 0.1}[w.rng.IntN(2)]
	w.straggle = []float64{0, 0.02, 0.1}[w.rng.IntN(3)]
	w.lag = []unit{1, tickUnits, 4 * tickUnits}[w.rng.IntN(3)]
	w.notice = []unit{2, 2 * tickUnits, 10 * tickUnits}[w.rng.IntN(3)]
	w.codec = w.rng.IntN(4) == 0
	if other := rand.New(rand.NewPCG(seed, 1)); other.IntN(2) == 0 { // a separate generator does not change the rest of the plan
		w.direct, w.fan = 1+other.IntN(2), 2+other.IntN(2)
	}
	w.first(1 + w.rng.IntN(6))
	actions := w.rng.IntN(12)
	for range actions {
		// Many faults are concentrated in time, where bugs are more likely.
		at := unit(w.rng.IntN(faultTicks)) * tickUnits
		if w.rng.IntN(2) == 0 {
			at = unit(w.rng.IntN(4)) * 60 * tickUnits
		}
		w.after(at+w.upTo(3*tickUnits), w.misfortune)
	}
	return w
}

// first makes the members of the first view.
func (w *world) first(n int) {
	var first []member.Member
	for i := range n {
		first = append(first, member.Member{ID: name(i)})
	}
	for i, p := range first {
		m, err := member.New(w.config(p), first)
		if err != nil {
			w.fail("%v", err)
			return
		}
		w.add(&node{id: p.ID, m: m, launcher: w.launcher(i)})
	}
}

// name returns the ID of the i-th node: a, b, ..., z, aa, ab, ...
func name(i int) member.ID {
	id := string(rune('a' + i%26))
	for i /= 26; i > 0; i /= 26 {
		id = string(rune('a'+(i-1)%26)) + id
	}
	return member.ID(id)
}

func (w *world) config(p member.Member) member.Config {
	return member.Config{Self: p, Any: w.mode == anyone, Keys: fakeKeys(p.ID), Direct: w.direct, Fan: w.fan}
}

// launcher returns which of two launchers starts the i-th peer.
func (w *world) launcher(i int) int {
	if w.mode == sole {
		return 0
	}
	return i % (1 + w.rng.IntN(2))
}

// misfortune causes one random fault.
func (w *world) misfortune() {
	if w.quiet {
		return
	}
	switch w.rng.IntN(11) {
	case 0, 1:
		w.join()
	case 2:
		if n := w.anyAlive(); n != nil {
			w.crash(n)
		}
	case 3:
		w.massacre()
	case 4:
		w.leave()
	case 5:
		w.slanderSome()
	case 6, 7:
		w.partition()
	case 8:
		w.cutOne()
	case 9:
		// A restart: the process dies, and starts again under another ID.
		if n := w.anyAlive(); n != nil {
			w.crash(n)
			w.join()
		}
	case 10:
		w.breakSession()
	}
}

// breakSession makes some members of a view ask for another view, as after a broken connection.
func (w *world) breakSession() {
	n := w.anyAlive()
	for _, o := range w.nodes {
		if n != nil && o.alive && o.view.Epoch == n.view.Epoch && w.rng.IntN(2) == 0 {
			w.after(w.upTo(2*tickUnits), func() { w.step(o, member.Renew{Epoch: n.view.Epoch}) })
		}
	}
}

func (w *world) anyAlive() *node {
	var alive []*node
	for _, n := range w.nodes {
		if n.alive {
			alive = append(alive, n)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[w.rng.IntN(len(alive))]
}

// join starts a newcomer that knows the addresses of all others.
func (w *world) join() {
	c := w.config(member.Member{ID: name(len(w.nodes)), Info: "addr"})
	for _, i := range w.rng.Perm(len(w.nodes)) {
		c.Contacts = append(c.Contacts, w.nodes[i].id)
	}
	w.say("%s wants to join", c.Self.ID)
	w.add(&node{id: c.Self.ID, m: member.NewJoiner(c), launcher: w.launcher(len(w.nodes))})
}

// crash ends a process. The detectors of the other nodes notice the death later, and in some modes
// the launcher reports it to its own peers.
func (w *world) crash(n *node) {
	w.say("%s crashes", n.id)
	n.alive = false
	if !n.out {
		w.crashes++
	}
	for _, o := range w.nodes {
		w.detect(o, n)
		if w.toldOfDeath(o, n) {
			w.after(w.upTo(w.notice), func() { w.step(o, member.Dead{Peer: n.id}) })
		}
	}
}

// endSettled stops a node that is out as its owner does: once it is settled.
func (w *world) endSettled(n *node, back bool) {
	if n.alive && !n.m.Settled() {
		w.after(tickUnits, func() { w.endSettled(n, back) })
		return
	}
	w.end(n, back)
}

// end stops a node that is out. A fenced node may come back under another ID.
func (w *world) end(n *node, back bool) {
	if n.alive {
		w.crash(n)
	}
	if back && !w.quiet && w.rng.IntN(2) == 0 {
		w.join()
	}
}

// toldOfDeath reports whether o's launcher reports the death of n to o.
func (w *world) toldOfDeath(o, n *node) bool {
	return (w.mode == certain || w.mode == sole) && o.launcher == n.launcher
}

// massacre ends several processes at about the same time.
func (w *world) massacre() {
	for _, n := range w.nodes {
		if n.alive && w.rng.IntN(2) == 0 {
			w.after(w.upTo(2*tickUnits), func() {
				if n.alive {
					w.crash(n)
				}
			})
		}
	}
}

func (w *world) leave() {
	if n := w.anyAlive(); n != nil && n.view.Epoch > 0 {
		n.leaving = true
		w.step(n, member.Leave{})
	}
}

// slanderSome makes nodes suspect healthy nodes for a while.
func (w *world) slanderSome() {
	for range 1 + w.rng.IntN(4) {
		a, b := w.anyAlive(), w.anyAlive()
		if a == nil || a == b {
			continue
		}
		pair := [2]*node{a, b}
		w.say("%s slanders %s", a.id, b.id)
		w.slander[pair] = true
		w.detect(a, b)
		w.after(w.upTo(80*tickUnits), func() {
			delete(w.slander, pair)
			w.detect(a, b)
		})
	}
}

// partition cuts the group in two for a while, in one direction or both.
func (w *world) partition() {
	oneWay := w.rng.IntN(3) == 0
	side := w.rng.Uint64()
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			left, right := side>>(a.index%64)&1, side>>(b.index%64)&1
			if left < right || left > right && !oneWay {
				w.cut[[2]*node{a, b}] = true
			}
		}
	}
	w.say("partition %b, one way: %v", side&(1<<len(w.nodes)-1), oneWay)
	w.detectAll()
	w.after(w.upTo(120*tickUnits), w.heal)
}

// cutOne cuts one pair for a while; both may still reach a third node.
func (w *world) cutOne() {
	a, b := w.anyAlive(), w.anyAlive()
	if a == nil || a == b {
		return
	}
	w.say("cut %s-%s", a.id, b.id)
	w.cut[[2]*node{a, b}] = true
	if w.rng.IntN(2) == 0 {
		w.cut[[2]*node{b, a}] = true
	}
	w.detectAll()
	if w.rng.IntN(2) == 0 {
		w.after(w.upTo(120*tickUnits), w.heal)
	}
}

// heal repairs all links.
func (w *world) heal() {
	w.say("heal")
	clear(w.cut)
	w.detectAll()
}

// calm ends all faults for good, except for deaths.
func (w *world) calm() {
	w.say("calm")
	w.quiet = true
	clear(w.cut)
	clear(w.slander)
	w.loss, w.straggle, w.twice = 0, 0, 0
	w.detectAll()
}

// introduce lets peers that are in different views find each other, as peers of a job eventually
// do.
func (w *world) introduce() {
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a != b && a.alive && !a.out && b.inside() && a.view.Hash() != b.view.Hash() {
				w.step(a, member.Met{Peer: b.id})
			}
		}
	}
}

// simulate runs one seed, and returns the failure or "", and the number of messages.
func simulate(seed uint64, trace func(string, ...any)) (failure string, messages int) {
	w := newWorld(seed, trace)
	w.say("seed %d: %v, %d members, loss %v, lag %d, notice %d", seed, w.mode, len(w.nodes), w.loss, w.lag, w.notice)
	w.runUntil(faultTicks * tickUnits)
	w.calm()
	end := w.now + settleTicks*tickUnits
	unsettled := w.checks.atRest(w)
	for w.failure == "" && unsettled != "" && w.now < end {
		w.introduce()
		w.runUntil(w.now + lookTicks*tickUnits)
		unsettled = w.checks.atRest(w)
	}
	if unsettled != "" {
		w.fail("not at rest %d ticks after the last fault: %s", settleTicks, unsettled)
	}
	w.checks.quiet(w)
	return w.failure, w.messages
}
