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
	most    int      // most members of a view
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
func (m *MembershipLog) reason(id string) *reason {
	if m.reasons[id] == nil {
		if len(m.reasons) > maxReported {
			clear(m.reasons)
		}
		m.reasons[id] = &reason{}
	}
	return m.reasons[id]
}

// Ended records that the process of the member with short ID id has failed. how has the form
// "exited with status 3". It returns the lines to print now. For a member of the current view the
// line waits for the next view; if no view comes within costPeriod, due returns the line.
func (m *MembershipLog) Ended(id, how string, now time.Time) []string {
	m.reason(id).end = how
	switch {
	case m.pending != nil && slices.Contains(m.pending.gone, id):
		m.shortenWait(now)
		return nil
	case m.Done:
	case slices.Contains(m.members, id):
		m.deaths = append(m.deaths, childDeath{id, how, now.Add(costPeriod)})
		return nil
	}
	return []string{m.describe(id) + " " + how}
}

// Completed records that the process of the member with short ID id has ended with status 0. Its
// loss is reported only by members that are slower to finish.
func (m *MembershipLog) Completed(id string, now time.Time) {
	m.reason(id).complete = true
	if m.pending != nil && slices.Contains(m.pending.gone, id) {
		m.shortenWait(now)
	}
}

// Event adds an event of any peer and returns the lines to print now.
func (m *MembershipLog) Event(e event.Event, now time.Time) []string {
	switch b := e.Body.(type) {
	case event.View:
		return m.view(e.Epoch, b, now)
	case event.Step:
		m.step(e, b, now)
	case event.Lost:
		if m.reason(b.Who).lost(e.Peer, b); m.reason(b.Who).maybeOverload() && m.isLocal(b.Who) {
			m.checkLoad()
		}
	case event.Leave:
		r := m.reason(b.Who)
		r.left, r.why = true, cmp.Or(b.Reason, r.why)
		if e.Peer == b.Who { // the others know only about which step it was
			r.step = e.Step
		}
	case event.Join:
		r := m.reason(b.Who)
		r.why = b.Reason
		r.bytes, r.ms = max(r.bytes, b.Bytes), max(r.ms, b.MS)
	case event.Done, event.Mistake:
		m.Done = true
	case event.Fenced:
		if r := m.reason(b.Who); !r.out {
			r.out, r.why = true, b.Reason
		}
		m.checkLoad()
		// If the pending change removes the member, the line about that change reports the fencing.
		if m.pending == nil || !slices.Contains(m.pending.gone, b.Who) {
			return m.other(e, now)
		}
	default:
		return m.other(e, now)
	}
	return nil
}

// view compares the view v of an epoch with the previous view, and returns the lines to print now.
func (m *MembershipLog) view(epoch uint64, v event.View, now time.Time) []string {
	if epoch <= m.epoch {
		return nil // another peer has reported this view, or a later one
	}
	// A change waits for the statuses of its dead peers, which come when their memory is freed: then it
	// shares a line with this one.
	earlier := m.pending
	var lines []string
	if earlier != nil && (m.Done || !now.Before(earlier.due) || !m.lacksEnds(earlier)) {
		earlier, lines = nil, m.takePending()
	}
	n := &viewChange{epoch: epoch, peers: len(v.Members), due: now.Add(costPeriod)}
	switch {
	case m.epoch > 0:
		n.gone, n.came = without(m.members, v.Members), without(v.Members, m.members)
	case v.Reason != "start": // the peers of this launcher join a running job
		n.came = slices.DeleteFunc(slices.Clone(v.Members), func(id string) bool { return !m.isLocal(id) })
	}
	if len(n.came) > 0 {
		m.newcomers = make(map[string]bool)
		for _, id := range n.came {
			m.newcomers[id] = true
		}
	}
	m.epoch, m.members, m.most = epoch, v.Members, max(m.most, len(v.Members))
	m.deaths = slices.DeleteFunc(m.deaths, func(d childDeath) bool { return !slices.Contains(v.Members, d.id) })
	if v.Reason == "leave" {
		// The leave events of these members may arrive later.
		for _, id := range n.gone {
			m.reason(id).left = true
		}
	}
	if m.Done || len(n.gone)+len(n.came) == 0 {
		return lines
	}
	if earlier != nil {
		n.gone, n.came, n.due = slices.Concat(earlier.gone, n.gone), slices.Concat(earlier.came, n.came), earlier.due
		n.recomputed, n.counted = earlier.recomputed, earlier.counted
	}
	m.pending = n
	return lines
}

// step adds a peer's report of a step. The first step after a change shows the cost of the change.
func (m *MembershipLog) step(e event.Event, s event.Step, now time.Time) {
	p := m.pending
	if p == nil || e.Epoch < p.epoch {
		return
	}
	if !p.counted {
		p.counted = true
		m.shortenWait(now)
	}
	p.recomputed += s.Recomputed
}

// shortenWait makes the line about the pending change due within collectPeriod if its content is
// complete: the cost of the change is known, and how the process of each lost member of this
// launcher ended.
func (m *MembershipLog) shortenWait(now time.Time) {
	p := m.pending
	if due := now.Add(collectPeriod); p.counted && !m.lacksEnds(p) && due.Before(p.due) {
		p.due = due
	}
}

// lacksEnds reports whether it is not known how the process of a lost member of this launcher ended.
func (m *MembershipLog) lacksEnds(p *viewChange) bool {
	return slices.ContainsFunc(p.gone, func(id string) bool {
		r := m.reason(id)
		return m.isLocal(id) && !r.left && !r.complete && r.end == ""
	})
}

// Due returns the lines that are due at now.
func (m *MembershipLog) Due(now time.Time) []string {
	var lines []string
	if m.pending != nil && !now.Before(m.pending.due) {
		lines = m.takePending()
	}
	if len(m.deaths) > 0 && !now.Before(m.deaths[0].due) {
		lines = append(lines, m.formatDeaths()+"; the others have not agreed on a new view yet")
	}
	return append(lines, m.takeDue(now)...)
}

// formatDeaths describes the recorded deaths in one line, and clears the record.
func (m *MembershipLog) formatDeaths() string {
	line := m.describe(m.deaths[0].id) + " " + m.deaths[0].how
	if more := len(m.deaths) - 1; more > 0 {
		line += fmt.Sprintf(", and %d more have ended", more)
	}
	m.deaths = nil
	return line
}

// Reset drops the views of a group that has ended, and returns the remaining lines about that
// group.
func (m *MembershipLog) Reset() []string {
	lines := m.Finish()
	m.epoch, m.members, m.most, m.newcomers, m.Done, m.waiting = 0, nil, 0, nil, false, false
	clear(m.reported)
	return lines
}

// Finish returns the remaining lines after all peers have ended. A pending change in which members
// only left or ended with status 0 is not reported.
func (m *MembershipLog) Finish() []string {
	if p := m.pending; p != nil && len(p.came) == 0 &&
		!slices.ContainsFunc(p.gone, func(id string) bool { return m.reason(id).isLoss() }) {
		m.pending = nil
	}
	lines := m.takePending()
	if len(m.deaths) > 0 {
		lines = append(lines, m.formatDeaths())
	}
	return append(lines, m.takeDue(time.Time{})...)
}

// takePending returns the line about the pending change, if there is one. If the line is too long,
// counts replace the descriptions of the members: first a count for each cause, and if the line is
// still too long, a total.
func (m *MembershipLog) takePending() []string {
	p := m.pending
	m.pending = nil
	if p == nil {
		return nil
	}
	line := m.formatChange(p, slices.Concat(m.describeEach(p), m.cost(p)))
	if len(line) > LineRoom {
		line = m.formatChange(p, slices.Concat(m.summary(p, true), m.cost(p)))
	}
	if len(line) > LineRoom {
		line = m.formatChange(p, m.summary(p, false))
	}
	for _, id := range p.gone {
		m.dropReported(id)
		delete(m.reasons, id)
	}
	// The overload explains this change only; for the next change the load is measured again.
	m.overloaded = ""
	return []string{line}
}

// formatChange returns the line about a change. parts describes the members that are gone or came.
func (m *MembershipLog) formatChange(p *viewChange, parts []string) string {
	return fmt.Sprintf("epoch %d: %s; %s", p.epoch, strings.Join(parts, ", "), m.formatNext(p.peers))
}

// cost describes the known costs of a change with losses: detection time and recomputed
// microbatches.
func (m *MembershipLog) cost(p *viewChange) (parts []string) {
	lost, detect := false, 0.0
	for _, id := range p.gone {
		if r := m.reason(id); r.isLoss() {
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
func (m *MembershipLog) describeEach(p *viewChange) []string {
	var parts []string
	for _, id := range p.gone {
		parts = append(parts, m.formatGone(id, m.reason(id)))
	}
	for _, id := range p.came {
		parts = append(parts, m.formatCame(id, m.reason(id)))
	}
	return parts
}

// summary counts the members that are gone or came. If detail is set, it counts the losses by
// cause. The event log lists the members.
func (m *MembershipLog) summary(p *viewChange, detail bool) []string {
	left, complete, lost, sudden := 0, 0, make(map[string]int), false // by cause
	// Every member that is gone counts once, by its most certain cause.
	for _, id := range p.gone {
		r := m.reason(id)
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
		if sudden && m.overloaded != "" {
			head += " were put out: " + m.overloaded
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
func (m *MembershipLog) formatNext(peers int) string {
	if peers >= m.minPeers {
		return printable.Plural(peers, "peer goes", "peers go") + " on"
	}
	of := fmt.Sprintf("of the %d needed", m.minPeers)
	return printable.Plural(peers, "peer "+of+" waits", "peers "+of+" wait") + " for more"
}

// formatGone describes a member that is gone, and the reason.
func (m *MembershipLog) formatGone(id string, r *reason) string {
	switch {
	case r.left && r.step > 0:
		return fmt.Sprintf("%s has left after step %d%s", m.describe(id), r.step, inBrackets(formatLeave(r.why)))
	case r.left:
		return m.describe(id) + " has left" + inBrackets(formatLeave(r.why))
	case r.complete:
		return m.describe(id) + " has ended with status 0"
	case r.end != "":
		return m.describe(id) + " is lost: it " + r.end
	case r.out:
		return m.describe(id) + " was put out while it still runs" + inBrackets(cmp.Or(m.overloaded, r.why)) + ", and joins again under a new ID"
	case r.maybeOverload() && m.overloaded != "":
		return m.describe(id) + " was put out: " + m.overloaded + ", " + m.formatCause(r)
	}
	return m.describe(id) + " is lost: " + m.formatCause(r)
}

// formatCame describes a new member.
func (m *MembershipLog) formatCame(id string, r *reason) string {
	s := m.describe(id) + " has joined"
	if r.bytes > 0 {
		s += fmt.Sprintf(" with %s of state in %.0f ms", size(r.bytes), r.ms)
	}
	return s
}

// formatCause explains the cause of a loss to people. If the lost member was unreachable, the text
// names a member that could not reach it, because the fault may be on either side.
func (m *MembershipLog) formatCause(r *reason) string {
	switch limit := formatLimit(r.limitMS); r.cause {
	case "exit":
		return "its process has ended" + limit
	case "reset":
		return "its connections broke" + limit
	case "silent":
		return "no message came from it" + limit
	case "unreachable":
		by := m.describe(r.by[0])
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

// formatCauses returns the word for a cause that follows a number of members, as in "3 silent, 1
// ended".
func formatCauses(cause string) string {
	switch cause {
	case "exit":
		return "ended"
	case "reset":
		return "disconnected"
	case "out":
		return "put out"
	case "":
		return "unknown"
	}
	return cause
}

// formatLimit describes a timeout of ms milliseconds, "" for 0 (unknown).
func formatLimit(ms float64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf(" for %.1f s", ms/1000)
}
