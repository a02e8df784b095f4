package say

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
)

const (
	// costPeriod is how long the line about a membership change waits for the first step after the
	// change, because that step shows the cost of the change.
	costPeriod = time.Second
	// collectPeriod is how long a line waits for further reports that belong to the same line.
	collectPeriod = 100 * time.Millisecond
	// waitingPause is the minimum time between two lines about the same missing quorum.
	waitingPause = 30 * time.Second
	// maxLineLength is the maximum length of a line for people, in bytes. If a list of members does
	// not fit, the line has counts, and the event log has the list.
	maxLineLength = 200
	// LineRoom is the part of maxLineLength that is left for the text after linePrefix.
	LineRoom = maxLineLength - len(linePrefix)
	// maxReported bounds the number of entries in MembershipLog.reported, and in
	// MembershipLog.reasons.
	maxReported = 1000
)

// MembershipLog turns the reports of the peers and the launcher about the membership into lines for
// people: one line for each change, although every peer reports the change. It does no I/O, reads
// no clock, and is not safe for concurrent use.
//
//	lost, leave, join, end of a child --> remembered as reasons
//	view                              --> a change: the members that the view adds or lacks
//	step, end of a child              --> cost and reasons of the change; then its line is written
//
// If the cost of a change is not known within costPeriod, the line about the change has no cost.
type MembershipLog struct {
	describe func(short string) string // describes a member for people
	isLocal  func(short string) bool   // reports whether this launcher started the member
	// minPeers is the number of members that the group needs to go on.
	minPeers int
	// Load returns a description of the overload of this host, or "" if this host is not
	// overloaded. It is nil if peers run on other hosts.
	Load       func() string
	overloaded string // first description from load since the last change; "" for none
	groups     []*eventGroup

	epoch   uint64
	members []string // short IDs of the latest view
	// reasons has, by short ID, the known reasons for which members have gone or come. The entry of
	// a member that is gone is removed when the line about the change is made.
	reasons  map[string]*reason
	pending  *viewChange          // the change that is not reported yet; nil for none
	deaths   []childDeath         // ends of members' processes that no view has confirmed yet
	reported map[string]time.Time // by key (see other): time of the last line about an event
	waiting  bool                 // the last line about the quorum says that peers are missing
	// newcomers is the set of members that joined with the latest view that added members.
	newcomers map[string]bool
	Done      bool // a peer has finished the job or reported a mistake: later changes are not reported
}

// viewChange is the difference between two consecutive views.
type viewChange struct {
	epoch      uint64
	gone, came []string
	peers      int // number of members after the change
	due        time.Time
	recomputed int
	counted    bool // a step has reported recomputed
}

// childDeath is the end of a process that this launcher started and that was a member. The next
// view without the member confirms the death. If no such view comes, the line about the death is
// due at due.
type childDeath struct {
	id, how string
	due     time.Time
}

// NewMembershipLog returns the log of a job that needs minPeers members. describe describes a
// member, given its short ID, and isLocal reports whether this launcher started it.
func NewMembershipLog(minPeers int, describe func(string) string, isLocal func(string) bool) *MembershipLog {
	return &MembershipLog{describe: describe, isLocal: isLocal, minPeers: minPeers, reasons: make(map[string]*reason), reported: make(map[string]time.Time)}
}

// reason returns the entry in reasons of the member with a short ID, and creates the entry if there
// is none.
func (l *MembershipLog) reason(id string) *reason {
	if l.reasons[id] == nil {
		if len(l.reasons) > maxReported {
			clear(l.reasons)
		}
		l.reasons[id] = &reason{}
	}
	return l.reasons[id]
}

// Ended records that the process of the member with short ID id has failed. how has the form
// "exited with status 3". It returns the lines to print now. For a member of the current view the
// line waits for the next view; if no view comes within costPeriod, due returns the line.
func (l *MembershipLog) Ended(id, how string, now time.Time) []string {
	l.reason(id).end = how
	switch {
	case l.pending != nil && slices.Contains(l.pending.gone, id):
		l.shortenWait(now)
		return nil
	case l.Done:
	case slices.Contains(l.members, id):
		l.deaths = append(l.deaths, childDeath{id, how, now.Add(costPeriod)})
		return nil
	}
	return []string{l.describe(id) + " " + how}
}

// Completed records that the process of the member with short ID id has ended with status 0. Its
// loss is reported only by members that are slower to finish.
func (l *MembershipLog) Completed(id string, now time.Time) {
	l.reason(id).complete = true
	if l.pending != nil && slices.Contains(l.pending.gone, id) {
		l.shortenWait(now)
	}
}

// Event adds an event of any peer and returns the lines to print now.
func (l *MembershipLog) Event(e event.Event, now time.Time) []string {
	switch b := e.Body.(type) {
	case event.View:
		return l.view(e.Epoch, b, now)
	case event.Step:
		l.step(e, b, now)
	case event.Lost:
		if l.reason(b.Who).lost(e.Peer, b); l.reason(b.Who).maybeOverload() && l.isLocal(b.Who) {
			l.checkLoad()
		}
	case event.Leave:
		r := l.reason(b.Who)
		r.left, r.why = true, cmp.Or(b.Reason, r.why)
		if e.Peer == b.Who { // the others know only about which step it was
			r.step = e.Step
		}
	case event.Join:
		r := l.reason(b.Who)
		r.why = b.Reason
		r.bytes, r.ms = max(r.bytes, b.Bytes), max(r.ms, b.MS)
	case event.Done, event.Mistake:
		l.Done = true
	case event.Fenced:
		if r := l.reason(b.Who); !r.out {
			r.out, r.why = true, b.Reason
		}
		l.checkLoad()
		// If the pending change removes the member, the line about that change reports the fencing.
		if l.pending == nil || !slices.Contains(l.pending.gone, b.Who) {
			return l.other(e, now)
		}
	default:
		return l.other(e, now)
	}
	return nil
}

// view compares the view v of an epoch with the previous view, and returns the lines to print now.
func (l *MembershipLog) view(epoch uint64, v event.View, now time.Time) []string {
	if epoch <= l.epoch {
		return nil // another peer has reported this view, or a later one
	}
	// A change waits for the statuses of its dead peers, which come when their memory is freed: then it
	// shares a line with this one.
	earlier := l.pending
	var lines []string
	if earlier != nil && (l.Done || !now.Before(earlier.due) || !l.lacksEnds(earlier)) {
		earlier, lines = nil, l.takePending()
	}
	n := &viewChange{epoch: epoch, peers: len(v.Members), due: now.Add(costPeriod)}
	switch {
	case l.epoch > 0:
		n.gone, n.came = without(l.members, v.Members), without(v.Members, l.members)
	case v.Reason != "start": // the peers of this launcher join a running job
		n.came = slices.DeleteFunc(slices.Clone(v.Members), func(id string) bool { return !l.isLocal(id) })
	}
	if len(n.came) > 0 {
		l.newcomers = make(map[string]bool)
		for _, id := range n.came {
			l.newcomers[id] = true
		}
	}
	l.epoch, l.members = epoch, v.Members
	l.deaths = slices.DeleteFunc(l.deaths, func(d childDeath) bool { return !slices.Contains(v.Members, d.id) })
	if v.Reason == "leave" {
		// The leave events of these members may arrive later.
		for _, id := range n.gone {
			l.reason(id).left = true
		}
	}
	if l.Done || len(n.gone)+len(n.came) == 0 {
		return lines
	}
	if earlier != nil {
		n.gone, n.came, n.due = slices.Concat(earlier.gone, n.gone), slices.Concat(earlier.came, n.came), earlier.due
		n.recomputed, n.counted = earlier.recomputed, earlier.counted
	}
	l.pending = n
	return lines
}

// step adds a peer's report of a step. The first step after a change shows the cost of the change.
func (l *MembershipLog) step(e event.Event, s event.Step, now time.Time) {
	p := l.pending
	if p == nil || e.Epoch < p.epoch {
		return
	}
	if !p.counted {
		p.counted = true
		l.shortenWait(now)
	}
	p.recomputed += s.Recomputed
}

// shortenWait makes the line about the pending change due within collectPeriod if its content is
// complete: the cost of the change is known, and how the process of each lost member of this
// launcher ended.
func (l *MembershipLog) shortenWait(now time.Time) {
	p := l.pending
	if due := now.Add(collectPeriod); p.counted && !l.lacksEnds(p) && due.Before(p.due) {
		p.due = due
	}
}

// lacksEnds reports whether it is not known how the process of a lost member of this launcher ended.
func (l *MembershipLog) lacksEnds(p *viewChange) bool {
	return slices.ContainsFunc(p.gone, func(id string) bool {
		r := l.reason(id)
		return l.isLocal(id) && !r.left && !r.complete && r.end == ""
	})
}

// Due returns the lines that are due at now.
func (l *MembershipLog) Due(now time.Time) []string {
	var lines []string
	if l.pending != nil && !now.Before(l.pending.due) {
		lines = l.takePending()
	}
	if len(l.deaths) > 0 && !now.Before(l.deaths[0].due) {
		lines = append(lines, l.formatDeaths()+"; the others have not agreed on a new view yet")
	}
	return append(lines, l.takeDue(now)...)
}

// formatDeaths describes the recorded deaths in one line, and clears the record.
func (l *MembershipLog) formatDeaths() string {
	line := l.describe(l.deaths[0].id) + " " + l.deaths[0].how
	if more := len(l.deaths) - 1; more > 0 {
		line += fmt.Sprintf(", and %d more have ended", more)
	}
	l.deaths = nil
	return line
}

// Reset drops the views of a group that has ended, and returns the remaining lines about that
// group.
func (l *MembershipLog) Reset() []string {
	lines := l.Finish()
	l.epoch, l.members, l.newcomers, l.Done, l.waiting = 0, nil, nil, false, false
	clear(l.reported)
	return lines
}

// Finish returns the remaining lines after all peers have ended. A pending change in which members
// only left or ended with status 0 is not reported.
func (l *MembershipLog) Finish() []string {
	if p := l.pending; p != nil && len(p.came) == 0 &&
		!slices.ContainsFunc(p.gone, func(id string) bool { return l.reason(id).isLoss() }) {
		l.pending = nil
	}
	lines := l.takePending()
	if len(l.deaths) > 0 {
		lines = append(lines, l.formatDeaths())
	}
	return append(lines, l.takeDue(time.Time{})...)
}

// takePending returns the line about the pending change, if there is one. If the line is too long,
// counts replace the descriptions of the members: first a count for each cause, and if the line is
// still too long, a total.
func (l *MembershipLog) takePending() []string {
	p := l.pending
	l.pending = nil
	if p == nil {
		return nil
	}
	line := l.formatChange(p, slices.Concat(l.describeEach(p), l.cost(p)))
	if len(line) > LineRoom {
		line = l.formatChange(p, slices.Concat(l.summary(p, true), l.cost(p)))
	}
	if len(line) > LineRoom {
		line = l.formatChange(p, l.summary(p, false))
	}
	for _, id := range p.gone {
		l.dropReported(id)
		delete(l.reasons, id)
	}
	// The overload explains this change only; for the next change the load is measured again.
	l.overloaded = ""
	return []string{line}
}

// formatChange returns the line about a change. parts describes the members that are gone or came.
func (l *MembershipLog) formatChange(p *viewChange, parts []string) string {
	return fmt.Sprintf("epoch %d: %s; %s", p.epoch, strings.Join(parts, ", "), l.formatNext(p.peers))
}

// cost describes the known costs of a change with losses: detection time and recomputed
// microbatches.
func (l *MembershipLog) cost(p *viewChange) (parts []string) {
	lost, detect := false, 0.0
	for _, id := range p.gone {
		if r := l.reason(id); r.isLoss() {
			lost, detect = true, max(detect, r.detectMS)
		}
	}
	if lost && detect > 0 {
		parts = append(parts, fmt.Sprintf("noticed after %.1f ms", detect))
	}
	if lost && p.counted {
		parts = append(parts, fmt.Sprintf("recomputed %d", p.recomputed))
	}
	return parts
}

// describeEach describes each member that is gone or came.
func (l *MembershipLog) describeEach(p *viewChange) []string {
	var parts []string
	for _, id := range p.gone {
		parts = append(parts, l.formatGone(id, l.reason(id)))
	}
	for _, id := range p.came {
		parts = append(parts, l.formatCame(id, l.reason(id)))
	}
	return parts
}

// summary counts the members that are gone or came. If detail is set, it counts the losses by
// cause. The event log lists the members.
func (l *MembershipLog) summary(p *viewChange, detail bool) []string {
	left, complete, lost, sudden := 0, 0, make(map[string]int), false // by cause
	// Every member that is gone counts once, by its most certain cause.
	for _, id := range p.gone {
		r := l.reason(id)
		sudden = sudden || r.isLoss() && r.maybeOverload()
		switch {
		case r.left:
			left++
		case r.complete:
			complete++
		case r.end != "":
			lost["exit"]++
		case r.out:
			lost["out"]++
		default:
			lost[r.cause]++
		}
	}
	// Causes are sorted, so that the line does not depend on the order of map iteration.
	var parts, causes []string
	for _, cause := range slices.Sorted(maps.Keys(lost)) {
		causes = append(causes, fmt.Sprintf("%d %s", lost[cause], formatCauses(cause)))
	}
	if len(causes) > 0 {
		// The first part gives the number of lost peers among the peers of the previous view.
		head := fmt.Sprintf("%d of %d peers", len(p.gone)-left-complete, p.peers-len(p.came)+len(p.gone))
		if sudden && l.overloaded != "" {
			head += " were put out: " + l.overloaded
			causes = append([]string{head}, causes...)
		} else {
			head += " are lost"
			causes[0] = head + ": " + causes[0]
		}
		if !detail {
			causes = []string{head}
		}
		parts = append(parts, causes...)
	}
	if left > 0 {
		parts = append(parts, printable.Plural(left, "peer has", "peers have")+" left")
	}
	if complete > 0 {
		parts = append(parts, printable.Plural(complete, "peer has", "peers have")+" ended with status 0")
	}
	if len(p.came) > 0 {
		parts = append(parts, printable.Plural(len(p.came), "peer has", "peers have")+" joined")
	}
	return parts
}

// formatNext says whether a view with this number of peers goes on or waits for a quorum.
func (l *MembershipLog) formatNext(peers int) string {
	if peers >= l.minPeers {
		return printable.Plural(peers, "peer goes", "peers go") + " on"
	}
	of := fmt.Sprintf("of the %d needed", l.minPeers)
	return printable.Plural(peers, "peer "+of+" waits", "peers "+of+" wait") + " for more"
}

// formatGone describes a member that is gone, and the reason.
func (l *MembershipLog) formatGone(id string, r *reason) string {
	switch {
	case r.left && r.step > 0:
		return fmt.Sprintf("%s has left after step %d%s", l.describe(id), r.step, inBrackets(formatLeave(r.why)))
	case r.left:
		return l.describe(id) + " has left" + inBrackets(formatLeave(r.why))
	case r.complete:
		return l.describe(id) + " has ended with status 0"
	case r.end != "":
		return l.describe(id) + " is lost: it " + r.end
	case r.out:
		return l.describe(id) + " was put out while it still runs" + inBrackets(cmp.Or(l.overloaded, r.why)) + ", and joins again under a new ID"
	case r.maybeOverload() && l.overloaded != "":
		return l.describe(id) + " was put out: " + l.overloaded + ", " + l.formatCause(r)
	}
	return l.describe(id) + " is lost: " + l.formatCause(r)
}

// formatCame describes a new member.
func (l *MembershipLog) formatCame(id string, r *reason) string {
	s := l.describe(id) + " has joined"
	if r.bytes > 0 {
		s += fmt.Sprintf(" with %s of state in %.0f ms", size(r.bytes), r.ms)
	}
	return s
}

// formatCause explains the cause of a loss to people. If the lost member was unreachable, the text
// names a member that could not reach it, because the fault may be on either side.
func (l *MembershipLog) formatCause(r *reason) string {
	switch limit := formatLimit(r.limitMS); r.cause {
	case "exit":
		return "its process has ended" + limit
	case "reset":
		return "its connections broke" + limit
	case "silent":
		return "no message came from it" + limit
	case "unreachable":
		by := l.describe(r.by[0])
		if more := len(r.by) - 1; more > 0 {
			by += fmt.Sprintf(" and %d more", more)
		}
		return by + " could not reach it" + limit
	case "":
		return "the cause is unknown" + limit
	default:
		return r.cause + limit
	}
}

// without returns the elements of a that are not in b. It changes neither a nor b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// inBrackets returns s in brackets after a space, or "" for "".
func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// size formats a number of bytes in binary units.
func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
