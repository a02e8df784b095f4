package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/elrun/elrun/cmd/elrun/top"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// psCommand is the command elrun ps. It lists only running jobs; elrun status JOB also shows a job
// that has ended.
type psCommand struct {
	Job  string `arg:"" optional:"" help:"Name of a job, or its beginning; default: all of them."`
	JSON bool   `name:"json" help:"One JSON array."`
}

// Run prints the jobs of this user on this host.
func (p *psCommand) Run(ctx context.Context, t *terminal) error {
	jobs, err := p.jobs(ctx)
	if err != nil {
		return err
	}
	if p.JSON {
		return writeJSON(t.stdout, jobs)
	}
	return writeJobs(t.stdout, jobs)
}

// jobs returns the named job, or all jobs.
func (p *psCommand) jobs(ctx context.Context) ([]launch.Status, error) {
	if p.Job == "" {
		return launch.Jobs(ctx)
	}
	s, err := statusOf(ctx, p.Job, false)
	return []launch.Status{s}, err
}

// writeJobs writes a table with a row for each job.
func writeJobs(to io.Writer, jobs []launch.Status) error {
	return table(to, "JOB\tPEERS\tEPOCH\tSTEP\tWAITING FOR\tGOODPUT\tSTATE", func(w io.Writer) {
		for _, j := range jobs {
			goodput := unknown
			if j.Goodput != nil && j.Step > 0 {
				goodput = fmt.Sprintf("%.0f %%", 100*j.Goodput.Ratio)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", j.Job, len(j.Members), countText(j.Epoch), countText(j.Step), shortList(j.WaitingFor), goodput, top.States(j.Members))
		}
	})
}

// statusCommand is the command elrun status.
type statusCommand struct {
	Job   string `arg:"" optional:"" help:"Name of the job, or its beginning; may be left out if there is only one. Of a job that has ended within a day it shows the outcome."`
	JSON  bool   `name:"json" help:"One JSON object, with all peers."`
	Peers bool   `help:"Show a line for each peer instead of a line for each host."`
	Check bool   `help:"Say in one line whether the job goes on, for health probes: status 1 if it waits for a peer that is unusually late, or for enough peers, or does not run."`
	Paths bool   `help:"Show the path of each pair's data, by pairs of hosts, and why no better path is used. Only pairs with a peer on this host are shown."`
}

// Validate implements kong's validation: its errors are usage errors.
func (s *statusCommand) Validate() error {
	if s.Check && (s.JSON || s.Peers || s.Paths) {
		return errors.New("--check goes with no other flag")
	}
	return nil
}

// Run prints the status of one job, running or ended.
func (s *statusCommand) Run(ctx context.Context, t *terminal) error {
	if s.Check {
		return s.check(ctx, t)
	}
	found, err := lastStatusOf(ctx, s.Job, s.Paths)
	switch {
	case err != nil:
		return err
	// JSON has every field in any case, so the other flags do not matter.
	case s.JSON:
		return writeJSON(t.stdout, found)
	case found.Ended != nil:
		return writeEnded(t.stdout, found, time.Now())
	}
	write := writeHosts
	switch {
	case s.Paths:
		write = writePaths
	case s.Peers:
		write = writePeers
	}
	return writeStatus(t.stdout, found, write)
}

// check prints whether a job goes on. It returns an error if the job does not.
func (s *statusCommand) check(ctx context.Context, t *terminal) error {
	job, err := launch.Find(ctx, s.Job)
	if err != nil {
		return err
	}
	now, err := job.Snapshot(ctx)
	if err != nil {
		return err
	}
	line, ok := health(now)
	if !ok {
		return fmt.Errorf("job %s %s", job.Name(), line)
	}
	_, err = fmt.Fprintf(t.stdout, "job %s %s\n", job.Name(), line)
	return err
}

// health tells in words whether a job goes on, and whether it does.
func health(s timeline.Snapshot) (line string, ok bool) {
	switch q, stall := s.Quorum, s.Stall; {
	case q != nil:
		return fmt.Sprintf("waits for enough peers: %d of %d are present", q.Present, q.Needed), false
	case stall != nil:
		return fmt.Sprintf("has waited %v for %s: %s", seconds(stall.SinceMS), shortList(strings.Split(stall.Culprit, ",")), printable.Line(stall.Phase)), false
	case s.Step == 0:
		return "has committed no step yet", true
	}
	return fmt.Sprintf("goes on: step %d, epoch %d", s.Step, s.Epoch), true
}

// statusOf returns the status of the named job, or of the only job if name is empty.
func statusOf(ctx context.Context, name string, paths bool) (launch.Status, error) {
	job, err := launch.Find(ctx, name)
	switch {
	case err != nil:
		return launch.Status{}, err
	case paths:
		return job.Paths(ctx)
	}
	return job.Status(ctx)
}

// lastStatusOf is statusOf, but if the named job has ended it returns the job's last status.
func lastStatusOf(ctx context.Context, name string, paths bool) (launch.Status, error) {
	s, err := statusOf(ctx, name, paths)
	// Only a named job may have ended: without a name the user means a running job.
	if name == "" || !errors.Is(err, launch.ErrNoJob) {
		return s, err
	}
	if last, ended := launch.LastStatus(ctx, name); !errors.Is(ended, launch.ErrNoJob) {
		return last, ended
	}
	return s, err
}

// writeStatus writes the status of a running job: a line about the job, lines about its progress,
// the time of the last step, about a batch that has grown and about the shares if they are known, and the table of members, which
// the function write writes. A dash stands for an unknown value: for example, a program without
// package trainer may report no steps. Long lines are truncated; --json has the full values.
func writeStatus(to io.Writer, s launch.Status, write func(io.Writer, []launch.MemberStatus) error) error {
	to = &lineTruncator{to: to}
	lines := fmt.Sprintf("job %s  epoch %s  step %s  waiting for %s\n", s.Job, countText(s.Epoch), formatStep(s), shortList(s.WaitingFor))
	if p := formatProgress(s.Progress); p != "" {
		lines += p + "\n"
	}
	if measured, predicted := s.StepTime(); measured > 0 {
		lines += "step time " + formatStepTime(measured, predicted) + "\n"
	}
	if s.Goodput != nil && s.Step > 0 {
		lines += s.Goodput.Line() + "\n" + formatStragglers(s.Stragglers)
	}
	if s.Batch > 0 {
		lines += fmt.Sprintf("batch %d since step %d\n", s.Batch, s.BatchSince)
	}
	if s.Balanced != nil {
		lines += "shares " + formatBalanced(*s.Balanced) + "\n"
	}
	if s.Log != "" {
		lines += "event log " + printable.Line(s.Log) + "\n"
	}
	if _, err := io.WriteString(to, lines); err != nil {
		return err
	}
	return write(to, s.Members)
}

// shownStragglers is the number of peers in the line about stragglers.
const shownStragglers = 3

// formatStragglers returns a line about the peers for which the others have waited longest, "" for none.
func formatStragglers(all []timeline.Straggler) string {
	var words []string
	for _, s := range all[:min(len(all), shownStragglers)] {
		if s.Waited.Total() < time.Second/10 {
			continue
		}
		who := text(s.ID)
		if s.Index >= 0 {
			who = fmt.Sprintf("peer %d", s.Index)
		}
		if s.Host != "" {
			who += " on " + text(s.Host)
		}
		var why []string
		for _, w := range []struct {
			d    time.Duration
			name string
		}{{s.Waited.Computing, "computing"}, {s.Waited.Call, "in calls"}, {s.Waited.Absent, "absent"}} {
			if w.d >= time.Second/10 {
				why = append(why, fmt.Sprintf("%.1f s %s", w.d.Seconds(), w.name))
			}
		}
		words = append(words, fmt.Sprintf("%s %s", who, strings.Join(why, ", ")))
	}
	if len(words) == 0 {
		return ""
	}
	return "waited for " + strings.Join(words, "; ") + "\n"
}

// writePeers writes a table with a row for each member (--peers).
func writePeers(to io.Writer, members []launch.MemberStatus) error {
	return table(to, "RANK\tINDEX\tID\tHOST\tSTATE\tSHARE\tSAMPLES/S\tCOMP MS\tPRED MS\tCOMM MS\tPATH\tSEEN", func(w io.Writer) {
		for _, m := range members {
			writeMember(w, m)
		}
	})
}

// writeEnded writes the status of a job that has ended: a line about the job, then the reason and
// the result, a line each, if they are known.
func writeEnded(to io.Writer, s launch.Status, now time.Time) error {
	e := *s.Ended
	lines := fmt.Sprintf("job %s  %s with status %d  step %s  after %v, %v ago (%s)\n", s.Job, text(e.Outcome), e.Status, formatStep(s),
		e.At.Sub(e.Began).Round(time.Second/10), now.Sub(e.At).Round(time.Second), e.At.Local().Format(time.DateTime))
	for _, line := range []string{e.Reason, e.Result} {
		if line != "" {
			lines += printable.Line(line) + "\n"
		}
	}
	if s.Log != "" {
		lines += "event log " + printable.Line(s.Log) + "\n"
	}
	_, err := io.WriteString(to, lines)
	return err
}

// formatStep returns the last step, with the number of steps if it is known.
func formatStep(s launch.Status) string {
	if s.Step > 0 && s.Of > 0 {
		return fmt.Sprintf("%d/%d", s.Step, s.Of)
	}
	return countText(s.Step)
}

// formatProgress returns the loss, the values of Turn.Report, the speed, and the elapsed and the remaining time, as far as they
// are known.
func formatProgress(p launch.Progress) string {
	var words []string
	add := func(known bool, format string, value any) {
		if known {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(p.Loss != 0, "loss %.4g", p.Loss)
	for _, name := range slices.Sorted(maps.Keys(p.Metrics)) {
		words = append(words, fmt.Sprintf("%s %.4g", printable.Line(name), p.Metrics[name]))
	}
	add(p.SamplesPerS > 0, "%.0f samples/s", p.SamplesPerS)
	add(p.SamplesPerS == 0 && p.StepsPerS > 0, "%.1f steps/s", p.StepsPerS)
	add(p.ElapsedMS > 0, "%v elapsed", seconds(p.ElapsedMS))
	add(p.LeftMS > 0, "%v left", seconds(p.LeftMS))
	return strings.Join(words, "  ")
}

// seconds returns a number of milliseconds as a duration in whole seconds.
func seconds(ms float64) time.Duration {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Second)
}

// writeMember writes the table row of one member.
func writeMember(w io.Writer, m launch.MemberStatus) {
	share := countText(m.Share)
	if m.StepMS > 0 { // the member was in a step, so its share is known even if it is 0
		share = fmt.Sprint(m.Share)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", indexText(m.Rank), indexText(m.Index), text(m.ID), text(m.Host),
		text(m.State), share, measureText(m.Speed, 0), measureText(m.ComputeMS, 1), measureText(m.PredictedMS, 1), measureText(m.CommMS, 1), text(m.Path), formatSeen(m.SeenMS))
}

// formatSeen returns the time since the last heartbeat of a member, given in milliseconds; a
// negative value means unknown.
func formatSeen(ms float64) string {
	switch {
	case ms < 0:
		return unknown
	case ms == 0:
		return "now"
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// formatStepTime returns the time of a step beside its prediction, both in ms; 0 for no prediction.
func formatStepTime(measured, predicted float64) string {
	if predicted <= 0 {
		return fmt.Sprintf("%.1f ms, not predicted", measured)
	}
	// A positive percentage means slower than predicted.
	return fmt.Sprintf("%.1f ms, predicted %.1f ms (%+.0f %%)", measured, predicted, 100*(measured/predicted-1))
}

// formatBalanced returns the latest change of the shares and its reason.
func formatBalanced(b launch.Balanced) string {
	change := formatShares(b.Shares)
	if len(b.Old) > 0 {
		change = formatShares(b.Old) + " -> " + change
	}
	return fmt.Sprintf("%s since step %d: %s", change, b.Step, printable.Line(b.Reason))
}

// maxShares is the largest number of ranks for which the line lists each share. The table of
// members has the shares of larger groups.
const maxShares = 16

// formatShares lists the shares of the ranks, or their range if there are more than maxShares.
func formatShares(shares []int) string {
	if len(shares) > maxShares {
		least, most := shares[0], shares[0]
		for _, n := range shares {
			least, most = min(least, n), max(most, n)
		}
		return fmt.Sprintf("%d-%d of %d ranks", least, most, len(shares))
	}
	var words []string
	for _, n := range shares {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, " ")
}

// unknown is the text for a value that is not known.
const unknown = "-"

// countText returns a count as text; 0 means that it is not known.
func countText[T int | int64 | uint64](n T) string {
	if n == 0 {
		return unknown
	}
	return fmt.Sprint(n)
}

// indexText returns a rank or an index as text; -1 means that there is none.
func indexText(n int) string {
	if n < 0 {
		return unknown
	}
	return fmt.Sprint(n)
}

// measureText returns a measurement as text; 0 or less means that there is none.
func measureText(v float64, decimals int) string {
	if v <= 0 {
		return unknown
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// text returns s without control characters, because names and reasons come from other hosts. For
// an empty s it returns a dash, because an empty cell would make columns ambiguous.
func text(s string) string {
	if s == "" {
		return unknown
	}
	return printable.Line(s)
}

// list returns names separated by commas; a dash for none.
func list(names []string) string { return text(strings.Join(names, ",")) }

// table writes a header and tab-separated rows with aligned columns.
func table(to io.Writer, header string, rows func(io.Writer)) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	rows(w)
	return w.Flush()
}

// writeJSON writes v as indented JSON.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
