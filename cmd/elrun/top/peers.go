package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
)

// over reports whether the process of a peer has ended, or the peer has left the job.
func over(p timeline.Peer) bool {
	return p.Exit != nil || slices.Contains([]string{timeline.StateLeft, timeline.StateLost, timeline.StateDone, timeline.StateExited}, p.State)
}

// stateOf returns the state of a peer, in capitals if it needs a look.
func stateOf(p timeline.Peer) string {
	if p.State == timeline.StateWaiting || p.State == timeline.StateLost {
		return strings.ToUpper(p.State)
	}
	return p.State
}

// keyOf returns a name of the process of a peer, which it keeps.
func keyOf(p timeline.Peer) string {
	if p.PID > 0 {
		return fmt.Sprintf("%s %d", p.Launcher, p.PID)
	}
	return p.ID
}

// peers are the peers of a job.
type peers struct{ timeline.Snapshot }

// columns returns the columns of the table: those of a narrow screen, and those that only a wide one has.
func (p peers) columns() []column {
	all := []column{{name: "#", numbers: true}, {name: "ID", narrow: true, keep: 1}, {name: "HOST", narrow: true, keep: 7}, {name: "STATE", narrow: true, keep: 2},
		{name: "SHARE", numbers: true, keep: 5}, {name: "SAMP/S", numbers: true, keep: 4}, {name: "COMP", numbers: true, keep: 8}, {name: "WAIT", numbers: true, keep: 9},
		{name: "W-FOR", numbers: true, keep: 3}, {name: "CPU", numbers: true, keep: 10}, {name: "MEM", numbers: true, keep: 11}, {name: "PATH", narrow: true, keep: 12}}
	for i, name := range []string{"STEP", "PRED", "DATA", "REDUCE", "APPLY", "COMMIT", "USEFUL", "STEPS", "SAMPLES", "SENT", "RECEIVED", "RANK", "PID", "SITE"} {
		all = append(all, column{name: name, numbers: name != "SITE", narrow: name == "SITE", keep: extra + i})
	}
	return all
}

// table returns a row for each peer. Those that have ended are below the others.
func (p peers) table() table {
	t := table{what: "peers", columns: p.columns(), sorted: 8}
	whole := wholeOf(p.Snapshot)
	for _, x := range p.Peers {
		ended := over(x)
		style := Plain
		switch {
		case ended:
			style = Faint
		case x.State == timeline.StateWaiting:
			style = Warn
		}
		part, speed := whole.share(x.Share), number(x.SamplesPerS, 0)
		if ended || x.State == timeline.StateParked {
			part, speed = cell{text: unknown}, cell{text: unknown}
		}
		l := x.Last
		cells := []cell{{text: indexed(x), number: -float64(x.Index)}, word(x.ID), word(x.Host), word(stateOf(x)), part, speed,
			number(l.ComputeMS, 1), number(l.WaitMS, 1), whole.waited(float64(x.WaitedFor.Total())), percent(x.CPU), bytes(x.RSS), word(x.Path)}
		for _, ms := range []float64{l.StepMS, l.PredictedMS, l.DataMS, l.ReduceMS, l.ApplyMS, l.CommitMS} {
			cells = append(cells, number(ms, 1))
		}
		useful := cell{text: share(x.Uses.Goodput(), 1, 0), number: x.Uses.Goodput()}
		cells = append(cells, useful, number(float64(x.Steps), 0), number(float64(x.Samples), 0), bytes(total(x.Sent)), bytes(total(x.Received)))
		rank := cell{text: unknown, number: -1}
		if x.Rank >= 0 {
			rank = cell{text: strconv.Itoa(x.Rank), number: -float64(x.Rank)}
		}
		cells = append(cells, rank, number(float64(x.PID), 0), word(x.Site))
		t.rows = append(t.rows, row{key: keyOf(x), cells: cells, style: style, last: ended})
	}
	return t
}

// total returns the sum over all kinds of paths.
func total(byPath map[string]int64) (sum int64) {
	for _, n := range byPath {
		sum += n
	}
	return sum
}

// history has the latest figures of each peer by its key, one for each snapshot.
type history map[string][]sample

// sample is the figures of a peer at a time.
type sample struct{ speed, compute, wait, cpu float64 }

// remembered bounds the samples of a peer: four minutes.
const remembered = 240

// add adds the figures of a snapshot. Peers that it has not any more are forgotten.
func (h history) add(all []timeline.Peer) {
	keep := make(map[string]bool)
	for _, p := range all {
		key := keyOf(p)
		keep[key] = true
		s := append(h[key], sample{p.SamplesPerS, p.Last.ComputeMS, p.Last.WaitMS, p.CPU})
		if len(s) > 2*remembered { // moved now and then, not each time
			s = slices.Clone(s[len(s)-remembered:])
		}
		h[key] = s
	}
	maps.DeleteFunc(h, func(key string, _ []sample) bool { return !keep[key] })
}

// profile is all that is known of a peer.
type profile struct {
	timeline.Peer
	all   timeline.Snapshot
	past  []sample
	ascii bool
	zone  *time.Location
}

// lines returns the lines about the peer for a width.
func (p profile) lines(width int) (lines []Line) {
	add := func(name, text string) {
		for i, part := range wrap(text, max(20, width-12)) {
			if i > 0 {
				name = ""
			}
			lines = append(lines, Line{{fmt.Sprintf("%-12s", name), Faint}, {part, Plain}})
		}
	}
	lines = append(lines, Line{{nameOf(p.Index, p.ID, p.Host), Strong}, {"  " + p.ID + "  " + stateOf(p.Peer), Plain}})
	add("process", p.process())
	add("before", strings.Join(p.IDs[:max(0, len(p.IDs)-1)], " "))
	whole := wholeOf(p.all)
	add("steps", fmt.Sprintf("%d with %d samples, %s of the last one, %s samples/s while it computes", p.Steps, p.Samples, whole.share(p.Share).text, number(p.SamplesPerS, 0).text))
	add("last step", p.last())
	add("step times", p.lengths())
	add("time", p.uses())
	if letters := p.strip(width - 12); letters != "" {
		add("", letters)
		add("", fmt.Sprintf("from %s on, %s a letter: %s", p.Strip.Begin.In(p.zone).Format(time.TimeOnly), duration(milliseconds(p.Strip.WidthMS*float64(len(p.Strip.Uses))/float64(len(letters)))), legend(letters)))
	}
	if p.WaitedFor.Total() > 0 {
		_, why, _ := strings.Cut(waitedText(timeline.Straggler{Index: p.Index, Waited: p.WaitedFor}), ": ")
		add("waited for", why)
	}
	add("memory", fmt.Sprintf("%s, processors %s, %s of their time", bytes(p.RSS).text, percent(p.CPU).text, duration(milliseconds(1000*p.CPUS))))
	add("sent", byPath(p.Sent))
	add("received", byPath(p.Received))
	for _, id := range slices.Sorted(maps.Keys(p.Links)) {
		add("link", fmt.Sprintf("%.1f MB/s from %s", p.Links[id], id))
	}
	for _, s := range []struct {
		name string
		of   func(sample) float64
		text string
	}{
		{"samples/s", func(s sample) float64 { return s.speed }, number(p.SamplesPerS, 0).text},
		{"compute ms", func(s sample) float64 { return s.compute }, number(p.Last.ComputeMS, 1).text},
		{"wait ms", func(s sample) float64 { return s.wait }, number(p.Last.WaitMS, 1).text},
		{"cpu", func(s sample) float64 { return s.cpu }, percent(p.CPU).text},
	} {
		var values []float64
		for _, x := range p.past[max(0, len(p.past)-remembered):] {
			values = append(values, s.of(x))
		}
		add(s.name, printable.Spark(values, min(60, width-24), true, p.ascii)+" "+s.text)
	}
	for _, other := range p.all.Peers {
		if other.Exit != nil && other.Launcher == p.Launcher && other.Index == p.Index && p.Index >= 0 {
			add("ended", exitText(other))
		}
	}
	return lines
}

// process tells of the process of the peer.
func (p profile) process() string {
	words := []string{"pid " + count(p.PID)}
	for _, w := range []struct{ name, text string }{{"site", p.Site}, {"machine", p.Machine}, {"elrun", cut(p.Launcher, 12)}, {"paths", p.Path}} {
		if w.text != "" {
			words = append(words, w.name+" "+w.text)
		}
	}
	if p.Rank >= 0 {
		words = append(words, fmt.Sprintf("rank %d", p.Rank))
	}
	if !p.Heard {
		words = append(words, "its events are in the log of another elrun")
	}
	return strings.Join(words, ", ")
}

// last tells of the last step of the peer, in parts that add up to it.
func (p profile) last() string {
	l := p.Last
	if l.Step == 0 {
		return ""
	}
	text := fmt.Sprintf("%d in %.1f ms: data %.1f, compute %.1f (predicted %.1f), wait %.1f", l.Step, l.StepMS, l.DataMS, l.ComputeMS, l.PredictedMS, l.WaitMS)
	if l.WaitFor != "" {
		text += " for " + l.WaitFor
	}
	return text + fmt.Sprintf(", reduce %.1f, apply %.1f, commit %.1f", l.ReduceMS, l.ApplyMS, l.CommitMS)
}

// lengths tells how many steps took how long.
func (p profile) lengths() string {
	var words []string
	bounds := timeline.HistogramBounds()
	for i, n := range p.Lengths {
		switch {
		case n == 0:
		case i < len(bounds):
			words = append(words, fmt.Sprintf("%d to %v", n, bounds[i]))
		default:
			words = append(words, fmt.Sprintf("%d longer", n))
		}
	}
	return strings.Join(words, ", ")
}

// uses tells what the time of the peer was used for.
func (p profile) uses() string {
	all := p.Uses.Total()
	if all <= 0 {
		return ""
	}
	words := []string{duration(all)}
	for u, d := range p.Uses {
		if part := float64(d) / float64(all); part >= 0.001 {
			words = append(words, fmt.Sprintf("%s %s", timeline.Use(u), share(part, 1, 1)))
		}
	}
	if p.ParkedMS > 0 {
		words = append(words, "parked "+duration(milliseconds(p.ParkedMS)))
	}
	return strings.Join(words, ", ")
}

// strip returns the uses of the peer's time as at most width letters, each the most frequent one of as many intervals.
func (p profile) strip(width int) string {
	uses := p.Strip.Uses
	width = min(width, len(uses))
	var b strings.Builder
	for i := range width {
		part := uses[i*len(uses)/width : (i+1)*len(uses)/width]
		most, n := part[0], 0
		for _, letter := range []byte(part) {
			if k := strings.Count(part, string(letter)); k > n {
				most, n = letter, k
			}
		}
		b.WriteByte(most)
	}
	return b.String()
}

// legend names the uses of letters.
func legend(letters string) string {
	var words []string
	for u := timeline.Useful; u <= timeline.Other; u++ {
		if strings.IndexByte(letters, u.Letter()) >= 0 {
			words = append(words, fmt.Sprintf("%c %v", u.Letter(), u))
		}
	}
	return strings.Join(words, ", ")
}

// byPath tells how many bytes went over which kind of path.
func byPath(sizes map[string]int64) string {
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(sizes)) {
		words = append(words, kind+" "+size(sizes[kind]))
	}
	return strings.Join(words, ", ")
}

// exitText tells how the process of a peer has ended.
func exitText(p timeline.Peer) string {
	e := *p.Exit
	text := fmt.Sprintf("pid %s exited with status %d", count(e.PID), e.Status)
	switch {
	case e.Signal > 0:
		text = fmt.Sprintf("pid %s killed by signal %d (%v)", count(e.PID), e.Signal, syscall.Signal(e.Signal))
	case e.Lost:
		text = fmt.Sprintf("pid %s lost with its host", count(e.PID))
	}
	text += " after " + duration(milliseconds(1000*e.RanS))
	if why := cmp.Or(e.Says, p.Cause, p.Reason); why != "" {
		text += ": " + why
	}
	return text
}
