package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// jobs are the jobs of a user on a host.
type jobs []launch.Status

// table returns a row for each job.
func (j jobs) table() table {
	t := table{what: "jobs", columns: []column{{name: "JOB", narrow: true}, {name: "STATE", narrow: true, keep: 5}, {name: "PEERS", numbers: true, keep: 4},
		{name: "EPOCH", numbers: true, keep: 8}, {name: "STEP", numbers: true, keep: 2}, {name: "GOODPUT", numbers: true, keep: 3}, {name: "SAMP/S", numbers: true, keep: 6},
		{name: "LEFT", numbers: true, keep: 7}, {name: "WAITING FOR", rest: true, keep: 1}}}
	for _, s := range j {
		goodput, left := cell{text: unknown}, cell{text: unknown}
		if s.Goodput != nil && s.Step > 0 {
			goodput = cell{text: share(s.Goodput.Ratio, 1, 0), number: s.Goodput.Ratio}
		}
		if s.LeftMS > 0 {
			left = cell{text: milliseconds(s.LeftMS).Round(time.Second).String(), number: s.LeftMS}
		}
		step := cell{text: count(s.Step), number: float64(s.Step)}
		if s.Of > 0 {
			step.text = fmt.Sprintf("%d/%d", s.Step, s.Of)
		}
		waiting := word(strings.Join(s.WaitingFor, ","))
		if len(s.WaitingFor) > 0 {
			waiting.style = Warn
		}
		t.rows = append(t.rows, row{key: s.Job, cells: []cell{word(s.Job), word(States(s.Members)), number(float64(len(s.Members)), 0),
			number(float64(s.Epoch), 0), step, goodput, number(s.SamplesPerS, 0), left, waiting}})
	}
	return t
}

// States returns the states of members with their counts, in the order of first occurrence: "running", or
// "7 running, 1 waiting". It is a dash if there are none.
func States(members []launch.MemberStatus) string {
	var states []string
	for _, m := range members {
		states = append(states, m.State)
	}
	return tally(states)
}

// tally counts words.
func tally(words []string) string {
	var kinds []string
	n := make(map[string]int)
	for _, w := range words {
		if w = printable.Line(cmp.Or(w, unknown)); n[w] == 0 {
			kinds = append(kinds, w)
		}
		n[w]++
	}
	if len(kinds) < 2 {
		return cmp.Or(strings.Join(kinds, ""), unknown)
	}
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", n[k], k)
	}
	return strings.Join(kinds, ", ")
}

// hosts are the hosts of a job.
type hosts struct{ timeline.Snapshot }

// table returns a row for each host: times are those of its slowest peer, all else are sums.
func (h hosts) table() table {
	t := table{what: "hosts", sorted: 7, columns: []column{{name: "HOST", narrow: true}, {name: "SITE", narrow: true, keep: 8}, {name: "PEERS", numbers: true, keep: 1},
		{name: "STATE", narrow: true, keep: 3}, {name: "SHARE", numbers: true, keep: 4}, {name: "SAMP/S", numbers: true, keep: 5}, {name: "COMP", numbers: true, keep: 6},
		{name: "W-FOR", numbers: true, keep: 2}, {name: "CPU", numbers: true, keep: 7}, {name: "MEM", numbers: true, keep: 9}, {name: "WORST", narrow: true, keep: 10}}}
	whole := wholeOf(h.Snapshot)
	members := make(map[string][]timeline.Peer)
	var keys []string
	for _, p := range h.Peers {
		if over(p) {
			continue
		}
		key := strings.ReplaceAll(cmp.Or(p.Machine, p.Host), " ", "_") + " " + p.Host
		if len(members[key]) == 0 {
			keys = append(keys, key)
		}
		members[key] = append(members[key], p)
	}
	for _, key := range keys {
		var states, sites []string
		worst := members[key][0]
		var shares int
		var speed, slowest, waited, cpu float64
		var memory int64
		for _, p := range members[key] {
			states, sites = append(states, stateOf(p)), append(sites, p.Site)
			shares, speed, slowest = shares+p.Share, speed+p.SamplesPerS, max(slowest, p.Last.ComputeMS)
			waited, cpu, memory = waited+float64(p.WaitedFor.Total()), cpu+p.CPU, memory+p.RSS
			if p.WaitedFor.Total() > worst.WaitedFor.Total() {
				worst = p
			}
		}
		t.rows = append(t.rows, row{key: key, cells: []cell{word(worst.Host), word(strings.Join(slices.Compact(sites), ",")), number(float64(len(states)), 0),
			word(tally(states)), whole.share(shares), number(speed, 0), number(slowest, 1), whole.waited(waited), percent(cpu), bytes(memory),
			word(fmt.Sprintf("peer %s", indexed(worst)))}})
	}
	return t
}

// links are the measured links of a job.
type links struct{ timeline.Snapshot }

// table returns a row for each link that is measured, the slowest first.
func (l links) table() table {
	t := table{what: "links", sorted: -1, columns: []column{{name: "FROM", narrow: true, keep: 1}, {name: "HOST", narrow: true, keep: 3}, {name: "TO", narrow: true},
		{name: "HOST", narrow: true, keep: 4}, {name: "MB/S", numbers: true, keep: 2}, {name: "PATHS", narrow: true, keep: 5}, {name: "RECEIVED", numbers: true, keep: 6}}}
	byID := make(map[string]timeline.Peer)
	for _, p := range l.Peers {
		byID[p.ID] = p
	}
	for _, to := range l.Peers {
		if over(to) {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(to.Links)) {
			from, known := byID[id]
			if !known {
				from = timeline.Peer{ID: id, Index: -1}
			}
			var received int64
			for _, n := range to.Received {
				received += n
			}
			t.rows = append(t.rows, row{key: id + " " + to.ID, cells: []cell{word(indexed(from) + " " + id), word(from.Host), word(indexed(to) + " " + to.ID), word(to.Host),
				number(to.Links[id], 1), word(to.Path), bytes(received)}})
		}
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return cmp.Compare(a.cells[4].number, b.cells[4].number) })
	return t
}

// events are what has happened to a job.
type events struct {
	timeline.Snapshot
	zone *time.Location
}

// table returns a row for each event, the latest first.
func (e events) table() table {
	t := table{what: "events", sorted: -1, columns: []column{{name: "TIME", keep: 1}, {name: "KIND", keep: 2}, {name: "TEXT", rest: true}}}
	type happened struct {
		at         time.Time
		kind, text string
		style      Style
	}
	var all []happened
	for _, m := range e.Messages {
		all = append(all, happened{m.Time, "message", m.Text, Plain})
	}
	for _, v := range e.Recent {
		all = append(all, happened{v.Time, "view", viewText(v), Warn})
	}
	for _, v := range e.Evals {
		all = append(all, happened{v.Time, "score", fmt.Sprintf("%s, in %s", evalText(v), duration(milliseconds(v.MS))), Good})
	}
	for _, c := range e.Checkpoints {
		all = append(all, happened{c.Time, "saved", fmt.Sprintf("checkpoint of step %d in %s, %s", c.Step, duration(milliseconds(c.MS)), c.Path), Good})
	}
	slices.SortStableFunc(all, func(a, b happened) int { return b.at.Compare(a.at) })
	seen := make(map[string]int)
	for _, h := range all {
		key := h.at.Format(time.RFC3339Nano) + " " + h.kind
		seen[key]++
		kind := cell{text: h.kind, style: h.style}
		t.rows = append(t.rows, row{key: key + " " + strconv.Itoa(seen[key]), cells: []cell{{text: h.at.In(e.zone).Format(time.TimeOnly)}, kind, {text: printable.Line(h.text)}}})
	}
	return t
}

// viewText tells of a change of the membership.
func viewText(v timeline.View) string {
	text := fmt.Sprintf("epoch %d (%s): %s", v.Epoch, cmp.Or(v.Reason, unknown), printable.Plural(len(v.Members), "member", "members"))
	if len(v.Joined) > 0 {
		text += ", joined " + strings.Join(v.Joined, " ")
	}
	if len(v.Left) > 0 {
		text += ", left " + strings.Join(v.Left, " ")
	}
	for _, l := range v.Lost {
		text += fmt.Sprintf(", lost %s (%s, after %s)", l.Who, cmp.Or(l.Cause, unknown), duration(milliseconds(l.DetectMS)))
	}
	if v.CostMS > 0 {
		text += fmt.Sprintf("; it took %s", duration(milliseconds(v.CostMS)))
	}
	if v.Recomputed > 0 {
		text += fmt.Sprintf(", %d microbatches were computed again", v.Recomputed)
	}
	return text
}

// whole has the sums of a job of which peers have parts.
type whole struct {
	shares int
	time   float64 // of all peers
}

// wholeOf returns the sums of a job.
func wholeOf(s timeline.Snapshot) (w whole) {
	for _, p := range s.Peers {
		if !over(p) && p.State != timeline.StateParked {
			w.shares += p.Share
		}
	}
	w.time = float64(s.Goodput.Uses.Total())
	return w
}

// share returns a cell with the part of the microbatches of a step.
func (w whole) share(n int) cell {
	return cell{text: share(float64(n), float64(w.shares), 0), number: float64(n)}
}

// waited returns a cell with the part of the time of all peers for which others have waited.
func (w whole) waited(d float64) cell {
	if d <= 0 {
		return cell{text: unknown}
	}
	return cell{text: share(d, w.time, 1), number: d}
}

// percent returns a cell with processors in percent.
func percent(processors float64) cell {
	if !(processors > 0) || math.IsInf(processors, 0) {
		return cell{text: unknown}
	}
	return cell{text: fmt.Sprintf("%.0f%%", 100*min(processors, 1e6)), number: processors}
}

// bytes returns a cell with a size.
func bytes(n int64) cell {
	if n <= 0 {
		return cell{text: unknown}
	}
	return cell{text: size(n), number: float64(n)}
}

// indexed returns the index of a peer at its elrun.
func indexed(p timeline.Peer) string {
	if p.Index < 0 {
		return unknown
	}
	return strconv.Itoa(p.Index)
}
