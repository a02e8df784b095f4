package member_test

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic/member"
)

// ballotOf identifies a ballot of a view.
type ballotOf struct {
	view   member.Hash
	ballot member.Ballot
}

// votesOf is the observed history of a ballot: the votes that have reached its proposer.
type votesOf struct {
	promised, accepted []member.ID
	change             string // the proposed change
}

// checks observes all machines and messages of a run, and checks the invariants by its own records,
// independent of the machines' state.
type checks struct {
	views    map[member.Hash]member.View
	children map[member.Hash]member.Hash // by parent; only views that were not forced
	epochs   map[uint64]member.Hash
	first    map[member.ID]member.Hash // the first view that each ID entered
	ballots  map[ballotOf]*votesOf
	accepts  map[ballotOf]bool                 // an Accept was sent
	highest  map[*node]map[member.Hash]ballots // by node and view
	last     map[*node]ballotOf                // of the last Accept sent
	proofs   map[member.Hash]int               // by view: the number of votes in the longest proof of it
}

// ballots are the highest ballots that a node has used as a proposer and promised as a voter.
type ballots struct{ proposed, promised member.Ballot }

func newChecks() *checks {
	return &checks{
		views: make(map[member.Hash]member.View), children: make(map[member.Hash]member.Hash),
		epochs: make(map[uint64]member.Hash), first: make(map[member.ID]member.Hash),
		ballots: make(map[ballotOf]*votesOf), accepts: make(map[ballotOf]bool),
		highest: make(map[*node]map[member.Hash]ballots), last: make(map[*node]ballotOf),
		proofs: make(map[member.Hash]int),
	}
}

// entered checks a view that a node enters, against its parent and all other views.
func (c *checks) entered(w *world, n *node, v member.View) {
	if v.Rank(n.id) < 0 {
		w.fail("%s enters %v, in which it is not", n.id, v)
	}
	if n.view.Epoch > 0 && v.Epoch <= n.view.Epoch {
		w.fail("%s enters %v after %v", n.id, v, n.view)
	}
	if _, known := c.views[v.Hash()]; known {
		return
	}
	c.views[v.Hash()] = v
	if w.mode == majority || w.mode == certain {
		c.unique(w, v)
	}
	parent, known := c.views[v.Parent]
	if !known && v.Epoch > 1 {
		return // no node has entered the parent yet: the parent is checked when a node enters it
	}
	if v.Epoch > 1 {
		c.follows(w, parent, v)
	}
}

// unique checks that no other view has the parent or the epoch of v (I1).
func (c *checks) unique(w *world, v member.View) {
	if other, taken := c.epochs[v.Epoch]; taken {
		w.fail("two views of one epoch: %v and %v", c.views[other], v)
	}
	c.epochs[v.Epoch] = v.Hash()
	if other, taken := c.children[v.Parent]; taken {
		w.fail("two views follow one: %v and %v", c.views[other], v)
	}
	c.children[v.Parent] = v.Hash()
	if v.Reason == member.ForForced {
		w.fail("%v was forced in mode %v", v, w.mode)
	}
}

// follows checks the order of ranks and the votes (I3, I11), and that no ID comes back (I2).
func (c *checks) follows(w *world, parent, v member.View) {
	var survivors []member.ID
	for _, id := range parent.IDs() {
		if v.Rank(id) >= 0 {
			survivors = append(survivors, id)
		}
	}
	if !slices.Equal(survivors, v.IDs()[:len(survivors)]) {
		w.fail("%v changes the order of %v", v, parent)
	}
	if v.Voters != len(survivors) {
		w.fail("%v has %d voters; %d members were in the view before", v, v.Voters, len(survivors))
	}
	for _, id := range v.IDs()[len(survivors):] {
		// A peer that two branches admitted enters one of them.
		if was, known := c.first[id]; known && (w.mode == majority || w.mode == certain || c.before(v, was)) {
			w.fail("%s comes back in %v; it was in %v", id, v, c.views[was])
		}
		c.first[id] = v.Hash()
	}
}

// before reports whether the view with a hash is an ancestor of v.
func (c *checks) before(v member.View, hash member.Hash) bool {
	for known := true; known; v, known = c.views[v.Parent] {
		if v.Parent == hash {
			return true
		}
	}
	return false
}

// sent checks a message against its sender's earlier messages.
func (c *checks) sent(w *world, n *node, msg member.Message) {
	key := ballotOf{msg.View, msg.Ballot}
	switch msg.Kind {
	case member.Branch:
		if s := msg.Spread; s.Author == n.id {
			c.sent(w, n, *s.Inner)
		}
	case member.Prepare:
		c.proposed(w, n, key)
		if c.accepts[key] {
			w.fail("%s prepares ballot %v after it sent Accept in it (I12)", n.id, msg.Ballot)
		}
		c.votes(key).promised = add(c.votes(key).promised, n.id)
	case member.Accept:
		c.proposed(w, n, key)
		c.accepting(w, n, key, msg)
	case member.Promise:
		c.voted(w, n, key)
	case member.Accepted:
		c.voted(w, n, key)
	}
}

// arrived counts the votes in a message that reaches n, for the ballots of n.
func (c *checks) arrived(n *node, msg member.Message) {
	switch s := msg.Spread; {
	case msg.Kind != member.Gather:
		c.count(msg, msg.From)
	case s.Author == n.id:
		for _, a := range s.Answers {
			for _, rank := range a.Ranks {
				c.count(*a.Message, c.views[s.In].Members[rank].ID)
			}
		}
	}
}

// count records a voter's vote, if the message is one.
func (c *checks) count(msg member.Message, voter member.ID) {
	key := ballotOf{msg.View, msg.Ballot}
	switch msg.Kind {
	case member.Promise:
		c.votes(key).promised = add(c.votes(key).promised, voter)
	case member.Accepted:
		c.votes(key).accepted = add(c.votes(key).accepted, voter)
	}
}

func (c *checks) votes(key ballotOf) *votesOf {
	if c.ballots[key] == nil {
		c.ballots[key] = &votesOf{}
	}
	return c.ballots[key]
}

func add(ids []member.ID, id member.ID) []member.ID {
	if slices.Contains(ids, id) {
		return ids
	}
	return append(ids, id)
}

func (c *checks) high(n *node, view member.Hash) ballots { return c.highest[n][view] }

func (c *checks) setHigh(n *node, view member.Hash, b ballots) {
	if c.highest[n] == nil {
		c.highest[n] = make(map[member.Hash]ballots)
	}
	c.highest[n][view] = b
}

// proposed checks that a proposer never returns to an earlier ballot.
func (c *checks) proposed(w *world, n *node, key ballotOf) {
	high := c.high(n, key.view)
	if key.ballot.Less(high.proposed) {
		w.fail("%s proposes in ballot %v after %v (I12)", n.id, key.ballot, high.proposed)
	}
	if v := c.views[key.view]; v.Rank(n.id) != int(key.ballot.Rank) {
		w.fail("%s uses ballot %v of another", n.id, key.ballot)
	}
	high.proposed = key.ballot
	c.setHigh(n, key.view, high)
}

// voted checks that a voter does not act below its promise.
func (c *checks) voted(w *world, n *node, key ballotOf) {
	high := c.high(n, key.view)
	if key.ballot.Less(high.promised) {
		w.fail("%s votes in ballot %v after it promised %v", n.id, key.ballot, high.promised)
	}
	high.promised = key.ballot
	c.setHigh(n, key.view, high)
}

// accepting checks that there were enough promises before the first Accept of a ballot, and that
// all Accepts of a ballot propose the same change.
func (c *checks) accepting(w *world, n *node, key ballotOf, msg member.Message) {
	votes := c.votes(key)
	change := fmt.Sprintf("%v %+v", *msg.Change, *msg.Change)
	if !c.accepts[key] {
		c.accepts[key] = true
		votes.change = change
		votes.promised = add(votes.promised, n.id)
		votes.accepted = add(votes.accepted, n.id)
		c.enough(w, key.view, votes.promised, "promised")
	}
	if votes.change != change {
		w.fail("%s asks for %s and %s in one ballot (I12)", n.id, votes.change, change)
	}
	c.last[n] = key
}

// decided checks that there were enough acceptances. A proposer that needed no other vote has sent
// no Accept.
func (c *checks) decided(w *world, n *node) {
	before := n.m.View().Parent
	ids := []member.ID{n.id}
	if key := c.last[n]; key.view == before {
		ids = c.votes(key).accepted
	}
	c.enough(w, before, ids, "accepted")
	c.marked(w, n.m.View(), ids)
	after := n.m.View().Hash()
	c.proofs[after] = max(c.proofs[after], min(len(ids), c.views[before].Voters/2+1))
}

// marked checks that a view decided by fewer than a majority is marked as forced.
func (c *checks) marked(w *world, after member.View, ids []member.ID) {
	before := c.views[after.Parent]
	votes := 0
	for _, id := range before.IDs()[:before.Voters] {
		if slices.Contains(ids, id) {
			votes++
		}
	}
	if after.Reason != member.ForForced && 2*votes < before.Voters {
		w.fail("%v follows %v by %v and is not marked as forced", after, before, ids)
	}
}

// enough checks votes against the true state. There must be votes of more than half of the voters,
// or of all voters that are not dead if fewer than a majority are dead (I10). The vote of a member
// that died later counts.
func (c *checks) enough(w *world, view member.Hash, ids []member.ID, what string) {
	if w.mode == sole || w.mode == anyone {
		return
	}
	v := c.views[view]
	votes, dead, missing := 0, 0, 0
	for _, id := range v.IDs()[:v.Voters] {
		switch {
		case slices.Contains(ids, id):
			votes++
		case w.byID[id].alive:
			missing++
		default:
			dead++
		}
	}
	needed := v.Voters/2 + 1
	if votes < needed && (w.mode == majority || missing > 0 || dead >= needed) {
		w.fail("only %v %s in %v", ids, what, v)
	}
}

// atRest returns the reason why the group is not at rest, or "". A group is at rest if all members
// are in one view of exactly the live peers, all members vote, and no newcomer waits. If no quorum
// is possible, the group is at rest if all members know that, except members that wait for the vote
// of a stranded member. Stranded members are ignored.
func (c *checks) atRest(w *world) string {
	var latest member.View
	for _, n := range w.nodes {
		if n.inside() && n.view.Epoch > latest.Epoch {
			latest = n.view
		}
	}
	if latest.Epoch == 0 {
		return ""
	}
	for _, n := range w.nodes {
		if n.inside() && n.view.Hash() != latest.Hash() && !c.stranded(w, n) {
			return fmt.Sprintf("%s is in %v, others in %v", n.id, n.view, latest)
		}
	}
	if !c.possible(w, latest) {
		if _, ended := c.children[latest.Hash()]; ended && w.crashes == 0 {
			return fmt.Sprintf("no member knows the view after %v, and those who decided it are gone", latest)
		}
		// Members that wait for the vote of a stranded member do not know that the vote will never
		// come.
		counts := c.possibleBy(w, latest, (*node).inside)
		for _, n := range w.nodes {
			if n.inside() && !n.lost && !counts {
				return fmt.Sprintf("%s does not know that %v has no quorum", n.id, n.view)
			}
		}
		return ""
	}
	return c.complete(w, latest)
}

// stranded reports whether n knows that it lacks a quorum in its view v, and can never enter the
// view after v. The live members of v can send that view to n, as n believes them. Another peer has
// to prove the view after v. A proof of at most Config.Direct votes goes with the change, so each
// live peer that knows the view has it. A longer proof stays with the members that decided the
// view: they were members of v. In the modes in which views can be forced all members keep all
// proofs.
func (c *checks) stranded(w *world, n *node) bool {
	next, ended := c.children[n.view.Hash()]
	if w.mode == sole || w.mode == anyone || !ended || !n.lost || c.possible(w, n.view) {
		return false
	}
	short := c.proofs[next] <= w.directVotes()
	return !slices.ContainsFunc(w.nodes, func(o *node) bool {
		knows := o.alive && (o.out || o.view.Hash() == next || c.before(o.view, next))
		return knows && (short || n.view.Rank(o.id) >= 0)
	})
}

// complete returns the fault of v, the view of all members that are not stranded, or "".
func (c *checks) complete(w *world, v member.View) string {
	if v.Voters < len(v.Members) {
		return fmt.Sprintf("%v has members without a vote", v)
	}
	alone := len(v.Members) == 1
	for _, n := range w.nodes {
		in := v.Rank(n.id) >= 0
		switch {
		case !in && n.inside():
			continue // stranded
		case in && !n.inside():
			return fmt.Sprintf("%s is gone and still in %v", n.id, v)
		case n.inside() && n.lost:
			return fmt.Sprintf("%s misses a quorum in %v", n.id, v)
		case n.inside() && n.leaving && !alone:
			return fmt.Sprintf("%s wants to leave %v", n.id, v)
		case n.alive && !n.out && n.view.Epoch == 0:
			return fmt.Sprintf("%s waits to join %v", n.id, v)
		}
	}
	return ""
}

// possible reports whether the members that have entered v can decide the view after v.
func (c *checks) possible(w *world, v member.View) bool {
	return c.possibleBy(w, v, func(n *node) bool { return n.inside() && n.view.Epoch >= v.Epoch })
}

// possibleBy reports whether the voters of v for which votes returns true can decide the view after
// v.
func (c *checks) possibleBy(w *world, v member.View, votes func(*node) bool) bool {
	if w.mode == sole || w.mode == anyone {
		return true
	}
	present, dead, known := 0, 0, 0
	for _, id := range v.IDs()[:v.Voters] {
		n := w.byID[id]
		if votes(n) {
			present++
			continue
		}
		if n.alive {
			continue // a live voter that is stranded or out: no launcher can report its death
		}
		dead++
		if slices.ContainsFunc(w.nodes, func(o *node) bool { return o.inside() && w.toldOfDeath(o, n) && v.Rank(o.id) >= 0 }) {
			known++
		}
	}
	needed := v.Voters/2 + 1
	return present >= needed || present > 0 && known == dead && present+dead == v.Voters && dead < needed
}

// quiet checks that a group at rest sends little more than its periodic Status messages.
func (c *checks) quiet(w *world) {
	inside, waiting := 0, 0
	for _, n := range w.nodes {
		switch {
		case n.inside():
			inside++
		case n.alive && !n.out:
			waiting++
		}
	}
	if w.failure != "" {
		return
	}
	const ticks = 40
	w.runUntil(w.now + 60*tickUnits) // time for messages in flight and their repetitions
	before := w.messages
	w.runUntil(w.now + ticks*tickUnits)
	// Each member sends a Status in 10 ticks, and, if views were forced, one more to a member of
	// another branch. The bound also covers repeated reports, views for members that are gone, and
	// the requests of newcomers with their answers.
	bound := 4*len(w.nodes) + inside*2*(ticks/10+1) + waiting*2*ticks/8 + inside*ticks/4
	if w.messages-before > bound {
		w.fail("%d messages in %d ticks at rest, at most %d", w.messages-before, ticks, bound)
	}
}
