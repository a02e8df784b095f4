// Package summary tells in a few lines what a job was, from the model of its logs:
//
//	j := timeline.New()
//	lines, err := timeline.Read(j, logs...)
//	fmt.Print(summary.Of(j.Snapshot(), lines))
//
// Every figure is one of the model. The last line says what the logs lack.
package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
)

const (
	// shown is the number of peers, and of causes, that a line names.
	shown = 3
	// leastWait is the shortest time for which a line names a peer.
	leastWait = 100 * time.Millisecond
)

// Of returns the lines about a job, each with a line end: its result, what the time of its peers was used for, the changes of its
// membership, for whom the others have waited, its slowest step, and what the logs lack. A line of which nothing is
// known is left out.
func Of(s timeline.Snapshot, found timeline.Lines) string {
	var b strings.Builder
	for _, line := range []string{headline(s), s.Goodput.Line(), changes(s), waited(s), slowest(s), lacks(s, found)} {
		if line != "" {
			b.WriteString(printable.Line(line))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// headline names the job, its end and its result.
func headline(s timeline.Snapshot) string {
	words := []string{cmp.Or(s.Job.Job, "a job without a name"), outcome(s)}
	steps := printable.Plural(int(s.Step), "step", "steps")
	if s.Of > s.Step {
		steps = fmt.Sprintf("%d of %d steps", s.Step, s.Of)
	}
	words = append(words, fmt.Sprintf("%s in %s", steps, length(s.Time.Sub(s.Begin))))
	if d := s.Done; d != nil {
		if d.Accuracy != nil {
			words = append(words, fmt.Sprintf("accuracy %.4g", *d.Accuracy))
		}
		if d.Loss != nil {
			words = append(words, fmt.Sprintf("loss %.6g", *d.Loss))
		}
		if d.SHA256 != "" {
			words = append(words, "sha256 "+d.SHA256)
		}
	}
	return strings.Join(words, "  ")
}

// outcome tells how the job ended, as far as the logs say it. A peer without which the others went on is no failure of the job.
func outcome(s timeline.Snapshot) string {
	if s.Done != nil {
		return "finished"
	}
	running, failed, asked := 0, 0, 0
	for _, p := range s.Peers {
		switch {
		case p.Exit == nil && p.Heard:
			running++
		case p.Exit == nil || p.Cause != "":
		case p.Exit.Asked:
			asked++
		case p.Exit.Status != 0:
			failed++
		}
	}
	switch {
	case running > 0:
		return "without an end in the log"
	case failed > 0:
		return "failed"
	case asked > 0:
		return "stopped"
	}
	return "ended without a result"
}

// changes counts the changes of the membership after the first view, with the time that they took.
func changes(s timeline.Snapshot) string {
	var cost float64
	var lost []string
	joined, left, n := 0, 0, 0
	for _, v := range s.Recent {
		cost += v.CostMS
		if v.Epoch <= 1 {
			continue
		}
		n++
		joined += len(v.Joined)
		left += max(0, len(v.Left)-len(v.Lost))
		for _, l := range v.Lost {
			lost = append(lost, lossOf(s, l))
		}
	}
	if n == 0 {
		return ""
	}
	var words []string
	if len(lost) > 0 {
		words = append(words, fmt.Sprintf("lost %d (%s)", len(lost), several(lost)))
	}
	if joined > 0 {
		words = append(words, fmt.Sprintf("joined %d", joined))
	}
	if left > 0 {
		words = append(words, fmt.Sprintf("left %d", left))
	}
	text := fmt.Sprintf("%s of the membership in %s", printable.Plural(n, "change", "changes"), length(milliseconds(cost)))
	if len(words) > 0 {
		text += ": " + strings.Join(words, ", ")
	}
	return text
}

// lossOf tells of the loss of a peer, with what its launcher knows of its end.
func lossOf(s timeline.Snapshot, l timeline.Loss) string {
	why := cmp.Or(l.Cause, "for an unknown reason")
	for _, p := range s.Peers {
		if p.Exit == nil || p.ID != l.Who && !slices.Contains(p.IDs, l.Who) {
			continue
		}
		why = end(*p.Exit)
		if p.Index >= 0 {
			why = fmt.Sprintf("peer %d %s", p.Index, why)
		}
	}
	if l.DetectMS > 0 {
		why += fmt.Sprintf(", noticed after %.0f ms", l.DetectMS)
	}
	return why
}

// end tells how a process has ended.
func end(e event.Exit) string {
	switch {
	case e.Signal > 0:
		return fmt.Sprintf("killed by signal %d (%v)", e.Signal, syscall.Signal(e.Signal))
	case e.Lost:
		return "lost with its host"
	}
	return fmt.Sprintf("exited with status %d", e.Status)
}

// waited names the peers for which the others have waited longest.
func waited(s timeline.Snapshot) string {
	var words []string
	for _, w := range s.Stragglers() {
		if w.Waited.Total() < leastWait {
			continue
		}
		who := "peer " + w.ID
		if w.Index >= 0 {
			who = fmt.Sprintf("peer %d (%s)", w.Index, w.ID)
		}
		if w.Host != "" {
			who += " on " + w.Host
		}
		var why []string
		for _, part := range []struct {
			name string
			d    time.Duration
		}{{"computing", w.Waited.Computing}, {"in calls", w.Waited.Call}, {"absent", w.Waited.Absent}} {
			if part.d >= leastWait {
				why = append(why, fmt.Sprintf("%s %s", length(part.d), part.name))
			}
		}
		words = append(words, who+" "+strings.Join(why, ", "))
	}
	if len(words) == 0 {
		return ""
	}
	return "waited for " + several(words)
}

// slowest names the slowest step, beside the mean of all.
func slowest(s timeline.Snapshot) string {
	if len(s.Series.BySteps) == 0 {
		return ""
	}
	whole := s.Series.BySteps[len(s.Series.BySteps)-1].Points
	var worst timeline.Point
	total, steps := 0.0, 0.0
	for _, p := range whole {
		if p.SlowMS > worst.SlowMS {
			worst = p
		}
		n := float64(p.Last - p.First + 1)
		total, steps = total+n*p.StepMS, steps+n
	}
	if worst.SlowMS == 0 {
		return ""
	}
	which := fmt.Sprintf("step %d", worst.First)
	if worst.Last > worst.First {
		which = fmt.Sprintf("one of the steps %d to %d", worst.First, worst.Last)
	}
	return fmt.Sprintf("slowest %s: %s, the mean is %s", which, length(milliseconds(worst.SlowMS)), length(milliseconds(total/steps)))
}

// lacks tells what the logs do not have, or have twice.
func lacks(s timeline.Snapshot, found timeline.Lines) string {
	var words []string
	add := func(n int64, one, many string) {
		if n > 0 {
			words = append(words, printable.Plural(int(n), one, many))
		}
	}
	if n := s.Lacks.Unheard; n > 0 {
		words = append(words, fmt.Sprintf("the events of %s are in the log of another elrun (%s)", printable.Plural(n, "peer", "peers"), several(unheard(s))))
	}
	if c := s.Coverage; c.Twice > 0 {
		words = append(words, fmt.Sprintf("%s with a microbatch twice, the first is step %d", printable.Plural(int(c.Twice), "step", "steps"), c.FirstTwice))
	}
	if c := s.Coverage; c.Missing > 0 {
		words = append(words, fmt.Sprintf("%s without all microbatches, the first is step %d", printable.Plural(int(c.Missing), "step", "steps"), c.FirstMissing))
	}
	add(s.Lacks.Dropped, "event was dropped", "events were dropped")
	add(found.Malformed+found.Long, "line is no event", "lines are no events")
	add(int64(found.Cut), "log is cut off", "logs are cut off")
	if len(words) == 0 {
		return ""
	}
	return "the logs lack: " + strings.Join(words, "; ")
}

// unheard names the members whose own events are missing.
func unheard(s timeline.Snapshot) (names []string) {
	for _, p := range s.Peers {
		if p.Rank >= 0 && !p.Heard {
			name := p.ID
			if p.Host != "" {
				name += "@" + p.Host
			}
			names = append(names, name)
		}
	}
	return names
}

// several joins at most shown texts.
func several(all []string) string {
	text := strings.Join(all[:min(len(all), shown)], "; ")
	if more := len(all) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// milliseconds converts a time of the model.
func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// length formats a duration.
func length(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
