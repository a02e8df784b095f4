package say

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/spec"
)

// other returns the line for an event that is no membership change by itself. All peers report such
// an event at about the same time, so each report has a key: the first report makes the line, and
// further reports with the same key are dropped. Some lines wait for collectPeriod, so that one
// line covers several members (eventgroup.go). The key has the epoch, so that the same event in a
// later view is reported again.
func (m *MembershipLog) other(e event.Event, now time.Time) []string {
	line, pause := m.formatOther(e), time.Duration(0)
	if line == "" {
		return nil
	}
	key := fmt.Sprint(e.Epoch, line)
	if r, ok := e.Body.(event.Resync); ok && r.Began {
		key = fmt.Sprint(e.Epoch, "began") // one line for all peers that differ at the beginning
	}
	if q, ok := e.Body.(event.Quorum); ok {
		key = fmt.Sprint(e.Epoch, q.State) // without the counts, which change
		switch q.State {
		case "waiting":
			pause, m.waiting = waitingPause, true
		case "back":
			if !m.waiting {
				return nil // no line has said that the peers wait
			}
			m.waiting = false
		}
	}
	// A missing quorum may last for hours and is reported again after a pause. Other events are
	// reported once.
	if at, ok := m.reported[key]; ok && (pause == 0 || now.Sub(at) < pause) {
		return nil
	}
	// Clearing the map bounds the memory of long jobs; afterwards a line may be printed a second
	// time.
	if len(m.reported) > maxReported {
		clear(m.reported)
	}
	m.reported[key] = now
	return m.collect(e, line, now)
}

// formatOther describes one event, "" if people need not know about it.
func (m *MembershipLog) formatOther(e event.Event) string {
	switch b := e.Body.(type) {
	case event.Parked:
		return fmt.Sprintf("%s cannot take part yet and waits: %s", m.describe(b.Who), b.Reason)
	case event.Fenced:
		return fmt.Sprintf("%s was put out of the group while it still runs%s; its state is void, and it joins again under a new ID",
			m.describe(b.Who), inBrackets(b.Reason))
	case event.Resync:
		if !slices.Contains(m.members, b.Who) || m.newcomers[b.Who] {
			return "" // the member is joining or has just joined: catching up is expected then
		}
		if b.Began {
			return fmt.Sprintf("%s began with another state than the others and has copied theirs (%s in %.0f ms), and so has every peer that differed: give all the same seed",
				m.describe(b.Who), size(b.Bytes), b.MS)
		}
		switch {
		case b.Void:
			return ""
		case b.Bytes == 0:
			return fmt.Sprintf("%s copies the state of the others: %s", m.describe(b.Who), b.Reason)
		}
		return fmt.Sprintf("%s has copied %s from the others in %.0f ms%s",
			m.describe(b.Who), size(b.Bytes), b.MS, inBrackets(b.Reason))
	case event.Forged:
		return fmt.Sprintf("%s sent a newcomer a wrong state (%s), which was refused: check the memory of the host of %s, or kick the peer",
			m.describe(b.Who), b.Reason, m.describe(b.Who))
	case event.Audit:
		return m.formatAudit(b, e.Step)
	case event.Mismatch:
		return "the job cannot begin: " + b.Reason
	case event.Unchanged:
		return fmt.Sprintf("the state has not changed in %d steps, which is right only if the program has converged; %s", b.Steps, b.Remedy)
	case event.Quorum:
		return m.formatQuorum(b)
	}
	return ""
}

// formatAudit describes the result of the audit of a step. In the first case a majority agrees, and
// the peers with another result were put out. In the second case there is no majority, and the line
// names the suspects. In the third case all peers computed the same, but the sum differs: data
// changed in transit.
func (m *MembershipLog) formatAudit(a event.Audit, step int64) string {
	var who []string
	for _, id := range a.Who {
		who = append(who, m.describe(id))
	}
	names := strings.Join(who, " and ")
	switch {
	case a.Out:
		return fmt.Sprintf("audit of step %d: %s put out, as %d of %d peers agree on another result: bad memory or a forged result; check the host, and go back to a checkpoint",
			step, names, a.For, a.Of)
	case len(who) > 0:
		return fmt.Sprintf("audit of step %d: one of %s is wrong, and too few others are there to tell which; check their hosts, and go back to a checkpoint",
			step, names)
	}
	return fmt.Sprintf("audit of step %d: %s; a peer or a network changes sums in transit; check memory, and do not use --encrypt never",
		step, a.Reason)
}

// formatQuorum describes the state of a group that is or was below its quorum. If no view has had as
// many members as needed, the group has not begun: nobody is lost, and others have to be started.
func (m *MembershipLog) formatQuorum(q event.Quorum) string {
	count := fmt.Sprintf("%d present, %d needed", q.Present, q.Needed)
	switch {
	case q.State == "waiting" && q.Needed > m.most:
		return "the job waits for more peers (" + count + "): start them by elrun scale or elrun join"
	case q.State == "waiting":
		return "too few peers are left (" + count + "); they keep their state and wait for others"
	case q.State == "back":
		return "there are enough peers now (" + count + "); they go on"
	case q.State == "gave-up":
		// The status is in the line, because scripts that see it may start the job again with
		// --resume.
		return fmt.Sprintf("too few peers came in time (%s); the group gives up with status %d", count, spec.StatusQuorum)
	}
	return ""
}
