package launch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
)

const (
	// costPeriod is the longest wait of a membership change for the first step after it, which
	// shows the cost of the change.
	costPeriod = time.Second
	// gatherPeriod is the longest wait for the reports of further peers about the same thing.
	gatherPeriod = 100 * time.Millisecond
	// waitingPause is the least time between two lines about the same missing quorum.
	waitingPause = 30 * time.Second
	// longestLine is the maximum length of a line for people, in bytes. Longer lists are in the
	// event log.
	longestLine = 200
	// roomOfLine is the part of longestLine after the program's name.
	roomOfLine = longestLine - len(noted)
	// maxSaid bounds the number of remembered lines and reasons.
	maxSaid = 1000
)

// changes turns the reports of the peers and the launcher about the membership into lines for
// people: one line for each change, though every peer reports it. It does no I/O, reads no clock,
// and is not safe for concurrent use.
//
//	lost, leave, join, end of a child --> remembered as reasons
//	view                              --> a change: the members that it adds or lacks
//	step, end of a child              --> cost and reasons of the change; then its line is written
//
// A change whose cost is not known within costPeriod is reported without it.
type changes struct {
	who func(short string) string // describes a member for people
	own func(short string) bool   // reports whether this launcher started the member
	// fewest is the number of members that the launcher's peers need to go on.
	fewest int
	// load describes the overload of this host, "" without overload. It is nil where peers run on
	// other hosts.
	load       func() string
	overloaded string // result of load since the last change
	crowds     []*crowd

	epoch   uint64
	members []string // short IDs of the latest view
	reasons map[string]*reason
	pending *change
	deaths  []death              // ends of members' processes, not yet seen in a view
	said    map[string]time.Time // time of the last line of other events, by their text
	waiting bool                 // people know that there are too few peers
	// newcomers is the set of members that joined with the latest view that added members.
	newcomers map[string]bool
	done      bool // a peer has finished: further leaves are not reported
}

// reason says why a member is gone, or how it came.
type reason struct {
	end      string // how its process ended
	cause    string // highest-ranking cause of its lost events
	detectMS float64
	limitMS  float64
	left     bool
	out      bool   // it was put out of the view while its process runs
	why      string // why it left, came or was put out
	bytes    int64
	ms       float64
}

// lost adds one member's report of a loss. The highest-ranking cause wins: a member that only saw
// a connection break knows less than a member whose wait timed out.
func (r *reason) lost(l event.Lost) {
	if r.detectMS == 0 || l.DetectMS < r.detectMS {
		r.detectMS = l.DetectMS
	}
	if causeRank(l.Cause) > causeRank(r.cause) {
		r.cause, r.limitMS = l.Cause, l.LimitMS
	}
}

// causeRank ranks the causes of a loss by their certainty; a higher rank is more certain.
func causeRank(cause string) int {
	return slices.Index([]string{"", "reset", "unreachable", "silent", "exit"}, cause)
}

// change is the difference between two consecutive views.
type change struct {
	epoch      uint64
	gone, came []string
	peers      int // members after the change
	due        time.Time
	recomputed int
	counted    bool // a step has reported recomputed
}

// death is the end of a member's process that this launcher started.
type death struct {
	id, how string
	due     time.Time
}

// newChanges returns changes for a job that needs fewest members. who describes a member, given
// its short ID, and own reports whether this launcher started it.
func newChanges(fewest int, who func(string) string, own func(string) bool) *changes {
	return &changes{who: who, own: own, fewest: fewest, reasons: make(map[string]*reason), said: make(map[string]time.Time)}
}

// reason returns the entry of a member and makes one if there is none.
func (c *changes) reason(id string) *reason {
	if c.reasons[id] == nil {
		if len(c.reasons) > maxSaid {
			clear(c.reasons)
		}
		c.reasons[id] = &reason{}
	}
	return c.reasons[id]
}

// ended records that the process of member id has failed, with how in the form "exited with status
// 3". It returns the lines to print now. For a member of the view the line waits for the next
// view; if none comes soon, due returns the line.
func (c *changes) ended(id, how string, now time.Time) []string {
	c.reason(id).end = how
	switch {
	case c.pending != nil && slices.Contains(c.pending.gone, id):
		c.hasten(now)
		return nil
	case c.done:
	case slices.Contains(c.members, id):
		c.deaths = append(c.deaths, death{id, how, now.Add(costPeriod)})
		return nil
	}
	return []string{c.who(id) + " " + how}
}

// event adds an event of any peer and returns the lines to print now.
func (c *changes) event(e event.Event, now time.Time) []string {
	switch b := e.Body.(type) {
	case event.View:
		return c.view(e.Epoch, b, now)
	case event.Step:
		c.step(e, b, now)
	case event.Lost:
		if c.reason(b.Who).lost(b); c.reason(b.Who).sudden() && c.own(b.Who) {
			c.sample()
		}
	case event.Leave:
		r := c.reason(b.Who)
		r.left, r.why = true, b.Reason
	case event.Join:
		r := c.reason(b.Who)
		r.why = b.Reason
		r.bytes, r.ms = max(r.bytes, b.Bytes), max(r.ms, b.MS)
	case event.Done:
		c.done = true
	case event.Fenced:
		if r := c.reason(b.Who); !r.out {
			r.out, r.why = true, b.Reason
		}
		c.sample()
		// A member of the pending change is reported in the line about that change.
		if c.pending == nil || !slices.Contains(c.pending.gone, b.Who) {
			return c.other(e, now)
		}
	default:
		return c.other(e, now)
	}
	return nil
}

// view compares the view of a new epoch with the previous view.
func (c *changes) view(epoch uint64, v event.View, now time.Time) []string {
	if epoch <= c.epoch {
		return nil // another peer has reported it
	}
	lines := c.flush()
	n := &change{epoch: epoch, peers: len(v.Members), due: now.Add(costPeriod)}
	switch {
	case c.epoch > 0:
		n.gone, n.came = without(c.members, v.Members), without(v.Members, c.members)
	case v.Reason != "start": // the peers of this launcher join a running job
		n.came = slices.DeleteFunc(slices.Clone(v.Members), func(id string) bool { return !c.own(id) })
	}
	if len(n.came) > 0 {
		c.newcomers = make(map[string]bool)
		for _, id := range n.came {
			c.newcomers[id] = true
		}
	}
	c.epoch, c.members = epoch, v.Members
	c.deaths = slices.DeleteFunc(c.deaths, func(d death) bool { return !slices.Contains(v.Members, d.id) })
	if c.done || len(n.gone)+len(n.came) == 0 {
		return lines
	}
	c.pending = n
	return lines
}

// step adds a peer's report of a step. The first step after a change shows the cost of the change.
func (c *changes) step(e event.Event, s event.Step, now time.Time) {
	p := c.pending
	if p == nil || e.Epoch < p.epoch {
		return
	}
	if !p.counted {
		p.counted = true
		c.hasten(now)
	}
	p.recomputed += s.Recomputed
}

// hasten lets the pending change be reported within gatherPeriod if all is known: its cost, and
// how the processes of lost members of this launcher ended.
func (c *changes) hasten(now time.Time) {
	p := c.pending
	unknown := slices.ContainsFunc(p.gone, func(id string) bool {
		r := c.reason(id)
		return c.own(id) && !r.left && r.end == ""
	})
	if due := now.Add(gatherPeriod); p.counted && !unknown && due.Before(p.due) {
		p.due = due
	}
}

// due returns the lines that are due at now.
func (c *changes) due(now time.Time) []string {
	var lines []string
	if c.pending != nil && !now.Before(c.pending.due) {
		lines = c.flush()
	}
	if len(c.deaths) > 0 && !now.Before(c.deaths[0].due) {
		lines = append(lines, c.wordDeaths()+"; the others have not gone on yet")
	}
	return append(lines, c.disperse(now)...)
}

// wordDeaths describes the recorded deaths in one line, and forgets them.
func (c *changes) wordDeaths() string {
	line := c.who(c.deaths[0].id) + " " + c.deaths[0].how
	if more := len(c.deaths) - 1; more > 0 {
		line += fmt.Sprintf(", and %d more have ended", more)
	}
	c.deaths = nil
	return line
}

// end returns the remaining lines after all peers have ended. Members that left at the end are not
// reported.
func (c *changes) end() []string {
	if p := c.pending; p != nil && len(p.came) == 0 &&
		!slices.ContainsFunc(p.gone, func(id string) bool { return !c.reason(id).left }) {
		c.pending = nil
	}
	lines := c.flush()
	if len(c.deaths) > 0 {
		lines = append(lines, c.wordDeaths())
	}
	return append(lines, c.disperse(time.Time{})...)
}

// flush returns the line about the pending change, if there is one. It shortens a line that is too
// long: counts in place of members, first by cause, then in all.
func (c *changes) flush() []string {
	p := c.pending
	c.pending = nil
	if p == nil {
		return nil
	}
	line := c.word(p, slices.Concat(c.each(p), c.cost(p)))
	if len(line) > roomOfLine {
		line = c.word(p, slices.Concat(c.summary(p, true), c.cost(p)))
	}
	if len(line) > roomOfLine {
		line = c.word(p, c.summary(p, false))
	}
	for _, id := range p.gone {
		c.tell(id)
		delete(c.reasons, id)
	}
	c.overloaded = ""
	return []string{line}
}

// word returns the line about a change. parts describe the members that are gone and that came.
func (c *changes) word(p *change, parts []string) string {
	return fmt.Sprintf("epoch %d: %s; %s", p.epoch, strings.Join(parts, ", "), c.wordNext(p.peers))
}

// cost describes the known costs of a change with losses: detection time and recomputed
// microbatches.
func (c *changes) cost(p *change) (parts []string) {
	lost, detect := false, 0.0
	for _, id := range p.gone {
		if r := c.reason(id); !r.left {
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

// each describes each member that is gone or came.
func (c *changes) each(p *change) []string {
	var parts []string
	for _, id := range p.gone {
		parts = append(parts, c.wordGone(id, c.reason(id)))
	}
	for _, id := range p.came {
		parts = append(parts, c.wordCame(id, c.reason(id)))
	}
	return parts
}

// summary counts the members that are gone or came; with detail it counts the losses by cause. The
// event log has the members.
func (c *changes) summary(p *change, detail bool) []string {
	left, lost, sudden := 0, make(map[string]int), false // by cause
	// Every member that is gone counts once, by its most certain cause.
	for _, id := range p.gone {
		r := c.reason(id)
		sudden = sudden || r.sudden()
		switch {
		case r.left:
			left++
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
		causes = append(causes, fmt.Sprintf("%d %s", lost[cause], wordCauses(cause)))
	}
	if len(causes) > 0 {
		// The first part gives the number of lost peers among the peers of the previous view.
		head := fmt.Sprintf("%d of %d peers", len(p.gone)-left, p.peers-len(p.came)+len(p.gone))
		if sudden && c.overloaded != "" {
			head += " were put out: " + c.overloaded
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
		parts = append(parts, plural(left, "peer has", "peers have")+" left")
	}
	if len(p.came) > 0 {
		parts = append(parts, plural(len(p.came), "peer has", "peers have")+" joined")
	}
	return parts
}

// wordCauses is a short form of wordCause, for several members.
func wordCauses(cause string) string {
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

// wordNext describes whether a view with this number of peers goes on or waits for a quorum. While
// there are too few, members may still join and be lost.
func (c *changes) wordNext(peers int) string {
	if peers >= c.fewest {
		return plural(peers, "peer goes", "peers go") + " on"
	}
	of := fmt.Sprintf("of the %d needed", c.fewest)
	return plural(peers, "peer "+of+" waits", "peers "+of+" wait") + " for more"
}

// wordGone describes a member that is gone, and the reason.
func (c *changes) wordGone(id string, r *reason) string {
	switch {
	case r.left:
		return c.who(id) + " has left" + inBrackets(wordLeave(r.why))
	case r.end != "":
		return c.who(id) + " is lost: it " + r.end
	case r.out:
		return c.who(id) + " was put out while it still runs" + inBrackets(cmp.Or(c.overloaded, r.why)) + ", and joins again under a new ID"
	case r.sudden() && c.overloaded != "":
		return c.who(id) + " was put out: " + c.overloaded + ", " + wordCause(r.cause) + wordLimit(r.limitMS)
	}
	return c.who(id) + " is lost: " + wordCause(r.cause) + wordLimit(r.limitMS)
}

// wordCame describes a new member.
func (c *changes) wordCame(id string, r *reason) string {
	s := c.who(id) + " has joined"
	if r.bytes > 0 {
		s += fmt.Sprintf(" with %s of state in %.0f ms", size(r.bytes), r.ms)
	}
	return s
}

// wordCause explains the cause of a lost event to people.
func wordCause(cause string) string {
	switch cause {
	case "exit":
		return "its process has ended"
	case "reset":
		return "its connections broke"
	case "silent":
		return "nothing was heard of it"
	case "unreachable":
		return "some of the others could not reach it"
	case "":
		return "no reason was told"
	}
	return cause
}

// wordLimit describes a timeout of ms milliseconds, "" for 0 (unknown).
func wordLimit(ms float64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf(" for %.1f s", ms/1000)
}

// wordLeave explains the reason of a leave event to people.
func wordLeave(reason string) string {
	if reason == "stalled" {
		return "stalled: it made no progress and held up the others, and said no Busy"
	}
	return reason
}

// without returns the elements of a that are not in b. It changes neither.
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

// plural returns n with the matching noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
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
