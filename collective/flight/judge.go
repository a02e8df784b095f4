package flight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The causes that Judge finds.
const (
	None        = "none"
	Absent      = "absent"       // a rank has not begun a call in which others wait
	OtherCall   = "other call"   // a rank makes another call than the others
	OtherLength = "other length" // the same call with another length
	OtherOrder  = "other order"  // the calls of the others, in another order
	Halted      = "stopped"      // the process of a rank is stopped by a signal
	Lost        = "lost"         // the process of a rank has ended, or the others have lost it
	NoAnswer    = "no answer"    // a rank does not answer
	Failed      = "failed"       // the call of a rank has failed
	Quorum      = "quorum"       // too few members are left
	Link        = "link"         // all ranks are in the call, and messages from or to a rank do not arrive
	Deadlock    = "deadlock"     // calls of several ranks wait for each other
	Parked      = "parked"       // a peer is not in the session, as the job is faster without it
)

// MaxText is the maximum length of a Finding's Text, in bytes.
const MaxText = 200

// Finding says which rank holds the others up, and why.
type Finding struct {
	Cause string `json:"cause"` // one of the constants
	Rank  int    `json:"rank"`  // in the session of Epoch; -1 if no rank is to blame
	Peer  string `json:"peer,omitempty"`
	Index int    `json:"index"` // of the peer, -1 if it is unknown
	Epoch uint64 `json:"epoch,omitempty"`
	Comm  uint64 `json:"comm,string"`
	Seq   uint32 `json:"seq,omitempty"` // of the call, 0 if no call is known
	Text  string `json:"text"`          // one sentence of at most MaxText bytes
	// Stacks has the goroutines of the peer, if it has told them.
	Stacks string `json:"stacks,omitempty"`
}

// Judge finds the first rank that is missing or different in the records of a job, one or more of each peer, of which the
// newest counts. Of the peers without a record it knows what job tells. Both may be incomplete, and come from
// DecodeRecord and DecodeJob. It looks in this order for
//
//	different calls at one place of the sequence
//	too few members
//	calls that wait, in the latest session: the chain of waits ends at the rank
//	calls that have failed
//	peers outside the session
func Judge(job Job, records []Record) Finding {
	j := judge{job: job}
	j.read(records)
	for _, find := range []func() (Finding, bool){j.mismatch, j.quorum, j.hang, j.failure, j.outside} {
		if v, ok := find(); ok {
			v.Text = clip(v.Text, MaxText)
			return v
		}
	}
	return Finding{Cause: None, Rank: -1, Index: -1, Text: fmt.Sprintf("no peer holds the others up: %d records show no call that waits or has failed", len(j.records))}
}

// judge is the work of Judge.
type judge struct {
	job     Job
	records []*Record
	remains map[string]*Record // of the peers whose processes have ended, by ID
	scenes  []*scene           // the latest first
}

// before says what a peer did when its process ended, for a sentence; "" if that is unknown.
func (j *judge) before(id string) string {
	r := j.remains[id]
	if r == nil || len(r.Calls) == 0 {
		return ""
	}
	for i := range r.Calls {
		if c := &r.Calls[i]; c.Open && !c.Background {
			return fmt.Sprintf(" in %s%s", clip(c.String(), 50), on(c.Comm))
		}
	}
	last := &r.Calls[len(r.Calls)-1]
	return fmt.Sprintf(" after %s%s", clip(last.String(), 50), on(last.Comm))
}

// finding returns the finding on a rank. The sentence begins with the rank's name.
func (j *judge) finding(cause string, s *scene, rank int, c *Call, sentence string) Finding {
	v := Finding{Cause: cause, Rank: rank, Peer: s.members[rank], Index: -1, Epoch: s.epoch}
	if c != nil {
		v.Comm, v.Seq = c.Comm, c.Seq
	}
	if p := j.known(v.Peer); p != nil {
		v.Index = p.Index
	}
	if r := s.records[rank]; r != nil {
		v.Index, v.Stacks = r.Index, r.Stacks
	}
	v.Text = j.name(s, rank) + " " + sentence
	return v
}

// known returns what others know of a peer, nil if nothing is known.
func (j *judge) known(id string) *Peer {
	for i := range j.job.Peers {
		if j.job.Peers[i].ID == id {
			return &j.job.Peers[i]
		}
	}
	return nil
}

// name names a rank for people, as in "rank 2 (peer 2, B7C22n75 on lab3)".
func (j *judge) name(s *scene, rank int) string {
	id := s.members[rank]
	index, host, known := 0, "", false
	if p := j.known(id); p != nil {
		index, host, known = p.Index, p.Host, p.Index >= 0
	}
	if r := s.records[rank]; r != nil {
		index, host, known = r.Index, r.Host, true
	}
	words := clip(id, 12)
	if known {
		words = fmt.Sprintf("peer %d, %s", index, words)
	}
	if host != "" {
		words += " on " + clip(host, 20)
	}
	return fmt.Sprintf("rank %d (%s)", rank, words)
}

// mismatch finds the first place, in the latest session that has one, at which ranks make different calls.
func (j *judge) mismatch() (Finding, bool) {
	for _, s := range j.scenes {
		for _, at := range s.places() {
			if rank, usual := s.different(at); rank >= 0 {
				return j.judgeDifferent(s, at, rank, usual), true
			}
		}
	}
	return Finding{}, false
}

// different returns the lowest rank whose call at a place is not that of most ranks, and a rank with that call; -1 if all calls are equal. Of
// two calls that equally many ranks make, the one of the lower rank counts as usual.
func (s *scene) different(at place) (rank, usual int) {
	calls := s.calls[at]
	count := func(a *Call) (n int) {
		for _, b := range calls {
			if b != nil && b.same(a) {
				n++
			}
		}
		return n
	}
	rank, usual = -1, -1
	most := 0
	for i, c := range calls {
		if c == nil {
			continue
		}
		if n := count(c); n > most {
			most, usual = n, i
		}
	}
	for i, c := range calls {
		if c != nil && !c.same(calls[usual]) {
			return i, usual
		}
	}
	return -1, -1
}

// same reports whether two calls at one place fit together.
func (c *Call) same(d *Call) bool {
	return c.Kind == d.Kind && c.What == d.What && c.Count == d.Count && c.Segment == d.Segment
}

// judgeDifferent says how the call of a rank differs from that of the rank usual.
func (j *judge) judgeDifferent(s *scene, at place, rank, usual int) Finding {
	mine, other := s.calls[at][rank], s.calls[at][usual]
	cause := OtherCall
	if mine.Kind == other.Kind && mine.Count != other.Count && withoutCount(mine) == withoutCount(other) {
		cause = OtherLength
	}
	for _, near := range []place{{at.comm, at.seq - 1}, {at.comm, at.seq + 1}} {
		if calls := s.calls[near]; calls != nil && calls[usual] != nil && mine.same(calls[usual]) {
			cause = OtherOrder
		}
	}
	what := map[string]string{OtherCall: "makes another call", OtherLength: "has another length", OtherOrder: "makes calls in another order"}[cause]
	return j.finding(cause, s, rank, mine, fmt.Sprintf("%s: call %d%s is %s there, and %s at rank %d", what, at.seq, on(at.comm), clip(mine.What, 40), clip(other.What, 40), usual))
}

// withoutCount returns the description of a call without its length.
func withoutCount(c *Call) string {
	return strings.Replace(c.What, fmt.Sprintf("[%d]", c.Count), "[]", 1)
}

// on names a communicator other than the first, for people.
func on(comm uint64) string {
	if comm == 0 {
		return ""
	}
	return fmt.Sprintf(" of communicator %08x", comm>>32)
}

// quorum finds a group with too few members. It names the first member that is gone.
func (j *judge) quorum() (Finding, bool) {
	short := slices.ContainsFunc(j.records, func(r *Record) bool { return r.Needs })
	if !short || len(j.scenes) == 0 {
		return Finding{}, false
	}
	s := j.scenes[0]
	gone := -1
	for rank := range s.members {
		if why, bad := j.fate(s, rank); s.records[rank] == nil && (gone < 0 || bad) {
			v := j.finding(Quorum, s, rank, nil, why+fmt.Sprintf("; too few of the %d members are left to go on", len(s.members)))
			if bad {
				return v, true
			}
			gone = rank
		}
	}
	if gone < 0 {
		return Finding{Cause: Quorum, Rank: -1, Index: -1, Epoch: s.epoch, Text: "too few members are left to go on: start further peers"}, true
	}
	why, _ := j.fate(s, gone)
	return j.finding(Quorum, s, gone, nil, why+fmt.Sprintf("; too few of the %d members are left to go on", len(s.members))), true
}

// fate says what is known of a rank without a record, for a sentence. bad is set if it is known to have ended, to be
// stopped, or not to answer.
func (j *judge) fate(s *scene, rank int) (text string, bad bool) {
	p := j.known(s.members[rank])
	switch {
	case p == nil:
		return "has no record here", false
	case p.End != "":
		return "has ended: " + clip(p.End, 60) + j.before(p.ID), true
	case p.Halted:
		return fmt.Sprintf("is stopped by a signal (SIGSTOP or a debugger): continue process %d", p.PID), true
	case p.Error != "":
		return "does not answer: " + clip(p.Error, 60), true
	}
	return "has no record here", false
}

// judgeSilent returns the finding on a rank without a record, for which the rank from waits in a call.
func (j *judge) judgeSilent(s *scene, rank int, c *Call, from int) Finding {
	why, _ := j.fate(s, rank)
	cause := NoAnswer
	if p := j.known(s.members[rank]); p != nil {
		switch {
		case p.End != "":
			cause = Lost
		case p.Halted:
			cause = Halted
		}
		if p.Step > 0 {
			why += fmt.Sprintf(", last step %d", p.Step)
		}
	}
	return j.finding(cause, s, rank, c, why+waits(from, c))
}

// waits says which call of a rank waits, for the end of a sentence.
func waits(from int, c *Call) string {
	purpose := ""
	if c.For != "" {
		purpose = clip(c.For, 30) + ", "
	}
	return fmt.Sprintf("; rank %d waits %.1f s in %s%s%s", from, c.MS/1000, purpose, clip(c.String(), 60), on(c.Comm))
}

// hang follows the waits in the latest session, from the call that waits longest to the rank that holds it up.
func (j *judge) hang() (Finding, bool) {
	if len(j.scenes) == 0 {
		return Finding{}, false
	}
	s := j.scenes[0]
	from, c := s.mostDelayed()
	if c == nil {
		return Finding{}, false
	}
	for seen := []int{from}; ; seen = append(seen, from) {
		rank := j.choose(s, s.missing(c, from))
		switch {
		case rank < 0:
			return j.inside(s), true
		case s.records[rank] == nil:
			return j.judgeSilent(s, rank, c, from), true
		case !s.entered[rank]:
			return j.finding(Absent, s, rank, c, fmt.Sprintf("has not entered session %d", s.epoch)+waits(from, c)), true
		case slices.Contains(seen, rank):
			return j.deadlock(s, seen[slices.Index(seen, rank):]), true
		}
		next := s.blocked(rank)
		if next == nil {
			return j.judgeAbsent(s, rank, c, from), true
		}
		from, c = rank, next
	}
}

// mostDelayed returns the rank that has waited longest, and its call; nil if no rank waits.
func (s *scene) mostDelayed() (rank int, c *Call) {
	for i := range s.members {
		if b := s.blocked(i); b != nil && (c == nil || b.MS > c.MS) {
			rank, c = i, b
		}
	}
	return rank, c
}

// choose returns the rank to follow of those that are missing in a call, -1 if there is none: one that is known to
// have ended or to be stopped, then one that is in no call, then one in another call, then one that does not answer, then one of
// which nothing is known.
func (j *judge) choose(s *scene, missing []int) int {
	if len(missing) == 0 {
		return -1
	}
	return slices.MinFunc(missing, func(a, b int) int { return cmp.Or(cmp.Compare(j.class(s, a), j.class(s, b)), cmp.Compare(a, b)) })
}

// class is the place of a missing rank in the order of choose.
func (j *judge) class(s *scene, rank int) int {
	p := j.known(s.members[rank])
	switch {
	case p != nil && (p.Halted || s.records[rank] == nil && p.End != ""):
		return 0
	case s.records[rank] == nil && p != nil && p.Error != "":
		return 3
	case s.records[rank] == nil:
		return 4
	case s.blocked(rank) == nil:
		return 1
	}
	return 2
}

// judgeAbsent returns the finding on a rank that is in no call, while the rank from waits for it.
func (j *judge) judgeAbsent(s *scene, rank int, c *Call, from int) Finding {
	if p := j.known(s.members[rank]); p != nil && p.Halted {
		why, _ := j.fate(s, rank)
		return j.finding(Halted, s, rank, c, why+waits(from, c))
	}
	done := "has made no call in this session"
	if c.Point != nil {
		done = "is in no call"
	} else if last := s.last[rank][c.Comm]; last > 0 {
		done = fmt.Sprintf("has not begun call %d, its last was %d", c.Seq, last)
	}
	return j.finding(Absent, s, rank, c, done+waits(from, c))
}

// deadlock returns the finding on ranks whose calls wait for each other, each for the next and the last for the first.
func (j *judge) deadlock(s *scene, ranks []int) Finding {
	rank := s.odd(ranks, s.blocked)
	at := slices.Index(ranks, rank)
	ranks = slices.Concat(ranks[at:], ranks[:at])
	var words []string
	for _, r := range ranks[:min(len(ranks), 4)] {
		c := s.blocked(r)
		words = append(words, fmt.Sprintf("rank %d in %s %d%s", r, c.Kind, c.Seq, on(c.Comm)))
	}
	return j.finding(Deadlock, s, rank, s.blocked(rank), "is in a deadlock, each waits for the next: "+strings.Join(words, ", "))
}

// odd returns the one of some ranks whose call is on the communicator on which the fewest ranks of the session have a call, by a
// function that returns the call of a rank or nil.
func (s *scene) odd(ranks []int, call func(rank int) *Call) int {
	on := make(map[uint64]int)
	for rank := range s.members {
		if c := call(rank); c != nil {
			on[c.Comm]++
		}
	}
	return slices.MinFunc(ranks, func(a, b int) int {
		x, y := call(a), call(b)
		if x == nil || y == nil {
			return 0
		}
		return cmp.Or(cmp.Compare(on[x.Comm], on[y.Comm]), cmp.Compare(a, b))
	})
}

// inside returns the finding if all ranks are in the call that waits: the rank that most watchdogs have found, or, before they
// have found one, the rank that has part in the two waits that last longest.
func (j *judge) inside(s *scene) Finding {
	var waiting []link
	votes := make([]int, len(s.members))
	for rank := range s.members {
		c := s.blocked(rank)
		if c == nil || c.Wait == nil {
			continue
		}
		for _, r := range s.inside(c.Wait.Culprits) {
			if r != rank {
				votes[r]++
			}
		}
		if w := c.Wait.For; w >= 0 && w < len(votes) && w != rank {
			waiting = append(waiting, link{rank, c})
		}
	}
	slices.SortStableFunc(waiting, func(a, b link) int { return cmp.Compare(b.call.Wait.QuietMS, a.call.Wait.QuietMS) })
	most := slices.Max(votes)
	rank := slices.Index(votes, most)
	from, c := s.mostDelayed()
	switch {
	case len(waiting) == 0 && most == 0:
		return j.finding(Link, s, from, c, "is in a call that all ranks have begun, and waits for nobody: see its goroutines"+waits(from, c))
	case most == 0 || len(waiting) > 0 && votes[shared(waiting)] == most:
		rank = shared(waiting)
	}
	for _, w := range waiting {
		if w.call.Wait.For == rank {
			from, c = w.from, w.call
			break
		}
	}
	phase := "or its link is slow or dead"
	if c.Wait != nil && c.Wait.Phase != "" {
		phase += " (" + clip(c.Wait.Phase, 30) + ")"
	}
	return j.finding(Link, s, rank, c, phase+": all ranks are in the call"+waits(from, c))
}

// link is the wait of a rank for another one, the For of the call's Wait.
type link struct {
	from int
	call *Call
}

// shared returns the rank that has part in the first two waits, or else the rank for which the first one waits.
func shared(waiting []link) int {
	first := waiting[0].call.Wait.For
	if len(waiting) > 1 && waiting[1].from != first && waiting[1].call.Wait.For == waiting[0].from {
		return waiting[0].from
	}
	return first
}

// failure finds calls that have failed, in the latest session that has some, and the rank that most errors blame. Errors that only
// tell of the revocation by another rank count less.
func (j *judge) failure() (Finding, bool) {
	for _, s := range j.scenes {
		if v, ok := j.failureIn(s); ok {
			return v, true
		}
	}
	return Finding{}, false
}

// weightOf is the weight of an error as evidence against the ranks that it names.
func weightOf(failure string) int {
	switch failure {
	case FailureDeadlock, FailureMismatch:
		return 1 << 20
	case FailurePeer, FailureOwn:
		return 1 << 10
	}
	return 1
}

// failureIn is failure for one session.
func (j *judge) failureIn(s *scene) (Finding, bool) {
	votes := make([]int, len(s.members))
	worst := make([]*Call, len(s.members))
	var calls []*Call
	for rank := range s.members {
		calls = append(calls, s.failures(rank)...)
	}
	for _, c := range calls {
		for _, b := range s.inside(c.Blames) {
			votes[b] += weightOf(c.Failure)
			if worst[b] == nil || weightOf(c.Failure) > weightOf(worst[b].Failure) {
				worst[b] = c
			}
		}
	}
	rank := slices.Index(votes, slices.Max(votes))
	c := worst[rank]
	if c == nil {
		return Finding{}, false
	}
	return j.judgeFailure(s, rank, c), true
}

// inside returns the ranks of the session among some numbers.
func (s *scene) inside(ranks []int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return r < 0 || r >= len(s.members) })
}

// failures returns the failed calls of a rank.
func (s *scene) failures(rank int) (calls []*Call) {
	r := s.records[rank]
	if r == nil || !s.entered[rank] {
		return nil
	}
	for i := range r.Calls {
		if c := &r.Calls[i]; c.Epoch == s.epoch && c.Error != "" {
			calls = append(calls, c)
		}
	}
	return calls
}

// failed returns the first failed call of a rank, nil if there is none.
func (s *scene) failed(rank int) *Call {
	if calls := s.failures(rank); len(calls) > 0 {
		return calls[0]
	}
	return nil
}

// judgeFailure returns the finding on the rank that the error of a call blames.
func (j *judge) judgeFailure(s *scene, rank int, c *Call) Finding {
	reason := c.Error[strings.LastIndex(c.Error, ": ")+1:]
	why := fmt.Sprintf("in call %d%s (%s): %s", c.Seq, on(c.Comm), c.Kind, clip(strings.TrimSpace(reason), 80))
	switch c.Failure {
	case FailureDeadlock:
		rank = s.odd(s.inside(c.Blames), s.failed)
		return j.finding(Deadlock, s, rank, c, "is in a deadlock "+why)
	case FailureMismatch:
		return j.finding(OtherCall, s, rank, c, "makes another call "+why)
	case FailurePeer:
		text, bad := j.fate(s, rank)
		if !bad {
			return j.finding(Lost, s, rank, c, "is lost "+why)
		}
		return j.finding(Lost, s, rank, c, text+"; others fail "+why)
	}
	return j.finding(Failed, s, rank, c, "has failed "+why)
}

// over reports whether a peer has ended as it should.
func over(p *Peer) bool { return p.State == "done" || p.State == "left" }

// outside finds a peer that has ended, is stopped, does not answer or is parked, of which no call tells.
func (j *judge) outside() (Finding, bool) {
	rules := []struct {
		cause string
		fits  func(p *Peer) bool
		text  func(p *Peer) string
	}{
		{Lost, func(p *Peer) bool { return strings.HasPrefix(p.End, "killed") && !over(p) }, func(p *Peer) string { return "has ended: " + clip(p.End, 80) + j.before(p.ID) }},
		{Lost, func(p *Peer) bool { return p.End != "" && !over(p) }, func(p *Peer) string { return "has ended: " + clip(p.End, 80) + j.before(p.ID) }},
		{Halted, func(p *Peer) bool { return p.Halted }, func(p *Peer) string { return fmt.Sprintf("is stopped by a signal: continue process %d", p.PID) }},
		{NoAnswer, func(p *Peer) bool { return p.Error != "" && !p.Answered }, func(p *Peer) string { return "does not answer: " + clip(p.Error, 80) }},
		{Parked, func(p *Peer) bool { return p.State == "parked" }, func(*Peer) string { return "is parked: the job is faster without it, and it waits" }},
	}
	for _, r := range rules {
		for i := range j.job.Peers {
			p := &j.job.Peers[i]
			if !r.fits(p) {
				continue
			}
			v := Finding{Cause: r.cause, Rank: -1, Peer: p.ID, Index: p.Index}
			v.Text = fmt.Sprintf("peer %d (%s on %s) %s", p.Index, clip(p.ID, 12), clip(p.Host, 20), r.text(p))
			if p.Step > 0 {
				v.Text += fmt.Sprintf(", last step %d", p.Step)
			}
			return v, true
		}
	}
	return Finding{}, false
}
