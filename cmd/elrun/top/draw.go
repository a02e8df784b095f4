package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// drawing draws a Model at a size.
type drawing struct {
	m             *Model
	width, height int
}

// Sizes of parts of a frame.
const (
	fewMessages = 3   // lines of messages that stay below many peers
	wide        = 160 // from this width on, there are two panels side by side
	tall        = 40  // and from this height on
	silence     = 5 * time.Second
)

// main draws the peers and the latest messages, without the head.
func (d drawing) main() (f Frame) {
	room := d.height - len(d.heads())
	t, _ := d.m.rows(jobScreen)
	// The rule and the head of the table take two lines.
	n := min(len(t.rows), room-2)
	if room >= 10 {
		n = min(n, room-2-1-fewMessages)
	}
	chosen := d.m.chosen[jobScreen]
	f = append(f, d.rule(&t, n+1))
	f = append(f, t.draw(d.width, n+1, chosen, !d.m.Still)...)
	if room -= len(f) + 1; room <= 0 {
		return f
	}
	f = append(f, d.line("-", ""))
	if d.width >= wide && d.height >= tall {
		return append(f, d.beside(d.messages(room), d.usage(room))...)
	}
	return append(f, d.messages(room)...)
}

// beside puts two panels side by side.
func (d drawing) beside(left, right []Line) (all []Line) {
	half := d.width * 3 / 5
	for i := range max(len(left), len(right)) {
		var l Line
		if i < len(left) {
			l = left[i].fit(half - 2)
		}
		if i < len(right) {
			l = append(l.pad(half), right[i]...)
		}
		all = append(all, l)
	}
	return all
}

// messages draws the latest messages, the newest first.
func (d drawing) messages(height int) (lines []Line) {
	all := d.m.snapshot.Messages
	for i := len(all) - 1; i >= 0 && len(lines) < height; i-- {
		lines = append(lines, Line{{all[i].Time.In(d.m.zone).Format(time.TimeOnly) + " ", Faint}, {all[i].Text, Plain}})
	}
	return lines
}

// usage draws what the time of the peers was used for, for whom they have waited, and the scores of the model.
func (d drawing) usage(height int) (lines []Line) {
	g := d.m.snapshot.Goodput
	total := g.Uses.Total()
	lines = append(lines, Line{{fmt.Sprintf("%s of %s", duration(total), printable.Plural(g.Peers, "peer", "peers")), Strong}})
	for u, spent := range g.Uses {
		if part := float64(spent) / float64(max(1, total)); part >= 0.001 {
			lines = append(lines, Line{{fmt.Sprintf("%-12s %s %6s %10s", timeline.Use(u), printable.Bar(part, 22), share(part, 1, 1), duration(spent)), Plain}})
		}
	}
	if all := d.m.snapshot.Stragglers(); len(all) > 0 {
		lines = append(lines, nil, Line{{"waited for", Strong}})
		for _, s := range all[:min(len(all), 5)] {
			lines = append(lines, Line{{waitedText(s), Plain}})
		}
	}
	if all := d.m.snapshot.Evals; len(all) > 0 {
		lines = append(lines, nil, Line{{"evaluations", Strong}})
		for i := range min(len(all), 5) {
			lines = append(lines, Line{{evalText(all[len(all)-1-i]), Plain}})
		}
	}
	return lines[:min(len(lines), height)]
}

// head draws what a job does: its title, and what waits. If full is set, there is all that has room.
func (d drawing) head(full bool) Frame {
	f := Frame{d.title()}
	s := &d.m.snapshot
	if full && d.m.known {
		if s.Of > 0 && d.height >= 9 {
			f = append(f, d.progress())
		}
		f = append(f, d.goodput())
		if d.height >= 10 {
			f = append(f, d.figures())
		}
	}
	text, style := d.culprit()
	lines := texts(style, wrap(text, d.width)...)
	switch {
	case len(lines) > 2 && d.height >= 20:
		lines = append(lines[:1], Line{{lines[1].String() + " " + lines[2].String(), style}})
	case len(lines) > 1 && d.height < 20:
		lines = Frame{{{text, style}}}
	case len(lines) == 0 && full && d.m.known && d.height >= 12: // so that the table does not move
		lines = Frame{nil}
	}
	return append(f, lines...)
}

// title draws the name of the job, its state and its position.
func (d drawing) title() Line {
	m, s := d.m, &d.m.snapshot
	state, style := m.state()
	left := []piece{{Span{m.job, Strong}, 0}, {Span{state, style}, 0}}
	if !m.known {
		return spread(d.width, left, nil)
	}
	members, machines := 0, make(map[string]bool)
	for _, p := range s.Peers {
		if !over(p) {
			members++
			machines[cmp.Or(p.Machine, p.Host)] = true
		}
	}
	left = append(left, piece{Span{"epoch " + count(s.Epoch), Plain}, 3})
	if members > 0 {
		left = append(left, piece{Span{printable.Plural(members, "peer", "peers"), Plain}, 2}, piece{Span{printable.Plural(len(machines), "host", "hosts"), Plain}, 4})
	}
	position := "step " + count(s.Step)
	if s.Of > 0 {
		position = fmt.Sprintf("step %d/%d", s.Step, s.Of)
	}
	right := []piece{{Span{position, Plain}, 1}}
	if s.LeftMS > 0 && m.end == nil {
		right = append(right, piece{Span{milliseconds(s.LeftMS).Round(time.Second).String() + " left", Plain}, 5})
	}
	return spread(d.width, left, right)
}

// progress draws which part of the job is done.
func (d drawing) progress() Line {
	part := float64(d.m.snapshot.Step) / float64(d.m.snapshot.Of)
	percent := fmt.Sprintf("%5.1f %%", 100*min(max(0, part), 1))
	return Line{{printable.Bar(part, d.width-len(percent)-1), Good}, {" " + percent, Plain}}
}

// goodput draws what the time of the peers is used for, and the speed.
func (d drawing) goodput() Line {
	s := &d.m.snapshot
	total := s.Goodput.Uses.Total()
	left := []piece{{Span{"goodput " + share(s.Goodput.Ratio, 1, 0), Strong}, 0}}
	names := []string{"useful", "data", "wait", "comm", "apply", "redo", "change", "catch up", "stall", "eval", "save", "start", "other"}
	for u, spent := range s.Goodput.Uses {
		percent := 100 * float64(spent) / float64(max(1, total))
		weight := 110 - int(percent) // the smallest goes first, and of all the useful part, which is the goodput
		if timeline.Use(u) == timeline.Useful {
			weight = 200
		}
		if percent >= 0.5 {
			left = append(left, piece{Span{fmt.Sprintf("%s %.0f", names[u], percent), Plain}, weight})
		}
	}
	var right []piece
	switch {
	case s.SamplesPerS > 0:
		right = append(right, piece{Span{fmt.Sprintf("%.0f samples/s", s.SamplesPerS), Plain}, 5})
	case s.StepsPerS > 0:
		right = append(right, piece{Span{fmt.Sprintf("%.1f steps/s", s.StepsPerS), Plain}, 5})
	}
	return spread(d.width, left, right)
}

// figures draws the loss, the last evaluation and the time of a step.
func (d drawing) figures() Line {
	s := &d.m.snapshot
	var left, right []piece
	if s.Loss != 0 {
		left = append(left, piece{Span{fmt.Sprintf("loss %.4g", s.Loss), Plain}, 0})
		if line := printable.Spark(d.losses(), max(10, d.width/8), false, d.m.ASCII); line != "" {
			left = append(left, piece{Span{line, Good}, 3})
		}
	}
	if n := len(s.Evals); n > 0 {
		e := s.Evals[n-1]
		if e.Accuracy != nil {
			e.Loss = nil // one of them is enough here
		}
		left = append(left, piece{Span{evalText(e), Plain}, 2})
	}
	if measured, predicted := d.m.stepTime(); measured > 0 {
		right = append(right, piece{Span{fmt.Sprintf("step %.1f ms", measured), Plain}, 1})
		if predicted > 0 {
			right = append(right, piece{Span{fmt.Sprintf("(predicted %.1f, %+.0f%%)", predicted, 100*(measured/predicted-1)), Plain}, 4})
		}
	}
	return spread(d.width, left, right)
}

// losses returns the losses of the whole job.
func (d drawing) losses() (values []float64) {
	levels := d.m.snapshot.Series.BySteps
	if len(levels) == 0 {
		return nil
	}
	for _, p := range levels[len(levels)-1].Points {
		if p.Loss != 0 {
			values = append(values, p.Loss)
		}
	}
	return values
}

// evalText returns a text about an evaluation.
func evalText(e timeline.Eval) string {
	text := cmp.Or(e.Set, "evaluation")
	if e.Accuracy != nil {
		text += fmt.Sprintf(" %.4g", *e.Accuracy)
	}
	if e.Loss != nil {
		text += fmt.Sprintf(" loss %.4g", *e.Loss)
	}
	return text + fmt.Sprintf(" @%d", e.Step)
}

// culprit returns how the job has ended, else what it waits for, else for whom it has waited longest.
func (d drawing) culprit() (string, Style) {
	m, s := d.m, &d.m.snapshot
	quiet := m.now.Sub(m.at)
	switch {
	case m.end != nil:
		return m.end.text(), Strong
	case !m.known:
		return "waiting for the first figures", Plain
	case quiet >= silence:
		return fmt.Sprintf("! no answer from the elruns of this job for %v", quiet.Round(time.Second)), Bad
	case s.Quorum != nil:
		return fmt.Sprintf("! no quorum: %d of %d members that are needed are there", s.Quorum.Present, s.Quorum.Needed), Bad
	case s.Stall != nil:
		return "! " + m.stallText(*s.Stall), Warn
	}
	if all := s.Stragglers(); len(all) > 0 && all[0].Waited.Total() >= time.Second/10 {
		return "waited longest for " + waitedText(all[0]), Plain
	}
	return "", Plain
}

// waitedText returns a text about a peer for which others have waited.
func waitedText(s timeline.Straggler) string {
	var why []string
	for _, part := range []struct {
		name string
		d    time.Duration
	}{{"computing", s.Waited.Computing}, {"in calls", s.Waited.Call}, {"absent", s.Waited.Absent}} {
		if part.d >= time.Second/10 {
			why = append(why, duration(part.d)+" "+part.name)
		}
	}
	return nameOf(s.Index, s.ID, s.Host) + ": " + strings.Join(why, ", ")
}

// nameOf returns a name of a peer for people.
func nameOf(index int, id, host string) string {
	name := "peer " + id
	if index >= 0 {
		name = fmt.Sprintf("peer %d", index)
	}
	if host != "" {
		name += " on " + host
	}
	return name
}

// stallText tells of a wait.
func (m *Model) stallText(s timeline.Stall) string {
	wait := milliseconds(s.SinceMS)
	if m.now.After(s.Time) && !s.Time.IsZero() {
		wait += m.now.Sub(s.Time)
	}
	var names []string
	for id := range strings.SplitSeq(s.Culprit, ",") {
		name := "peer " + id
		for _, p := range m.snapshot.Peers {
			if p.ID == id || slices.Contains(p.IDs, id) {
				name = nameOf(p.Index, id, p.Host)
			}
		}
		if names = append(names, name); len(names) == 3 {
			break
		}
	}
	if n := strings.Count(s.Culprit, ",") + 1 - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	text := fmt.Sprintf("waiting %s for %s", duration(wait), strings.Join(names, ", "))
	if s.Phase != "" {
		text += ": " + s.Phase
	}
	if s.What != "" {
		text += ", in " + s.What
	}
	return text
}

// stepTime returns the time of the last step in ms and what was predicted, as launch.Status.StepTime has them.
func (m *Model) stepTime() (measured, predicted float64) {
	var s launch.Status
	for _, p := range m.snapshot.Peers {
		if p.Rank >= 0 && !over(p) {
			s.Members = append(s.Members, launch.MemberStatus{StepMS: p.Last.StepMS, ComputeMS: p.Last.ComputeMS, PredictedMS: p.Last.PredictedMS})
		}
	}
	measured, predicted = s.StepTime()
	if measured > math.MaxFloat32 || predicted > math.MaxFloat32 {
		return 0, 0
	}
	return measured, predicted
}

// state returns the state of the open job in a word.
func (m *Model) state() (string, Style) {
	s := &m.snapshot
	switch {
	case m.end != nil && m.end.Ended == nil:
		return "GONE", Bad
	case m.end != nil && m.end.Ended.Status != 0:
		return m.end.word(), Bad
	case m.end != nil:
		return m.end.word(), Good
	case !m.known:
		return "", Plain
	case s.Done != nil:
		return "DONE", Good
	case s.Quorum != nil:
		return "NO QUORUM", Bad
	case s.Stall != nil:
		return "WAITING", Warn
	case s.Step == 0:
		return "STARTING", Plain
	}
	return "RUNNING", Good
}

// word returns the outcome in capitals.
func (e *End) word() string {
	outcome, _, _ := strings.Cut(e.Ended.Outcome, ",")
	outcome, _, _ = strings.Cut(outcome, " by ")
	return strings.ToUpper(cmp.Or(outcome, "ended"))
}

// text returns how a job has ended.
func (e *End) text() string {
	if e.Ended == nil {
		return e.Reason
	}
	text := fmt.Sprintf("%s with status %d after %v", cmp.Or(e.Ended.Outcome, "ended"), e.Ended.Status, e.Ended.At.Sub(e.Ended.Began).Round(time.Second/10))
	if why := cmp.Or(e.Ended.Reason, e.Ended.Result); why != "" {
		text += ": " + why
	}
	return text
}

// rule draws a line above a table, which names the rows, their order, and those in view of a height.
func (d drawing) rule(t *table, height int) Line {
	m := d.m
	live := len(t.rows)
	for _, r := range t.rows {
		if r.last {
			live--
		}
	}
	text := printable.Plural(live, strings.TrimSuffix(t.what, "s"), t.what)
	if n := len(t.rows) - live; n > 0 {
		text += fmt.Sprintf(", %d ended,", n)
	}
	if t.sorted >= 0 {
		text += " by " + t.columns[t.sorted].name
	}
	if found := m.found[m.place]; found != "" || m.typing {
		text += fmt.Sprintf(" with %q", found)
	}
	return d.line(text, t.page(height, m.chosen[m.place]))
}

// line draws a line with a text in it at either end.
func (d drawing) line(left, right string) Line {
	if left != "-" {
		left = "- " + left + " "
	}
	if right != "" {
		right = " " + right + " -"
	}
	n := max(0, d.width-cells(printable.Line(left))-len(right))
	return Line{{left + strings.Repeat("-", n) + right, Faint}}
}

// keys draws the keys of the present screen.
func (d drawing) keys() Line {
	m := d.m
	if m.typing {
		return Line{{" find: " + m.found[m.place] + "_", Strong}, {"   enter keeps it, esc ends it", Faint}}
	}
	words := map[scene]string{
		jobsScreen: "enter open|s sort|/ find",
		jobScreen:  "s sort|enter peer|h hosts|e events|l links|c commands|/ find",
		peerScreen: "esc back|h hosts|e events|l links|c commands", hostsScreen: "esc back|s sort|enter its peers|e events|l links|/ find",
		eventsScreen: "esc back|enter all of it|h hosts|l links|/ find", eventScreen: "esc back",
		linksScreen: "esc back|s sort|h hosts|e events|/ find", commandsScreen: "esc back", helpScreen: "esc back",
	}[m.place]
	pieces := []piece{{Span{}, 0}}
	for i, w := range strings.Split(words, "|") {
		pieces = append(pieces, piece{Span{w, Faint}, 1 + i})
	}
	pieces = append(pieces, piece{Span{"? help", Faint}, 0}, piece{Span{"q quit", Faint}, 0})
	return append(Line{{" ", Plain}}, spread(d.width-1, pieces, nil)...)
}

// body draws the present screen without its head.
func (d drawing) body() Frame {
	m := d.m
	if m.place == jobScreen {
		return d.main()
	}
	t, ok := m.rows(m.place)
	if !ok {
		all := d.page()
		return all[min(m.scroll, max(0, len(all)-1)):]
	}
	f := Frame{}
	if m.place == jobsScreen {
		f = append(f, spread(d.width, []piece{{Span{"elrun top", Strong}, 0}, {Span{"your jobs on this host", Plain}, 1}}, nil))
		if m.lost != "" {
			f = append(f, Line{{"! " + m.lost, Bad}})
		}
	} else if !m.known {
		return f
	}
	room := d.height - len(d.heads()) - len(f) - 1
	f = append(f, d.rule(&t, room))
	f = append(f, t.draw(d.width, room, m.chosen[m.place], !m.Still)...)
	switch {
	case len(t.rows) > 0:
	case m.place == jobsScreen && m.listed && m.found[jobsScreen] == "":
		f = append(f, texts(Plain, " no job runs; elrun -n 4 PROGRAM starts one")...)
	case m.place == linksScreen && m.found[linksScreen] == "":
		f = append(f, texts(Plain, " no link is measured: there are fewer than three hosts")...)
	}
	return f
}

// heads returns the head above the present screen.
func (d drawing) heads() Frame {
	if d.m.place == jobsScreen || d.m.place == helpScreen {
		return nil
	}
	return d.head(d.m.place == jobScreen)
}
