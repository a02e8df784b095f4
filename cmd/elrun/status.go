package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// psCommand is elrun ps.
type psCommand struct {
	Job  string `arg:"" optional:"" help:"Name of a job, or its beginning; default: all of them."`
	JSON bool   `name:"json" help:"One JSON array."`
}

// Run lists the jobs.
func (c *psCommand) Run(ctx context.Context, t *terminal) error {
	jobs, err := c.jobs(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(t.stdout, jobs)
	}
	return writeJobs(t.stdout, jobs)
}

// jobs returns the one that is named, or all.
func (c *psCommand) jobs(ctx context.Context) ([]launch.Status, error) {
	if c.Job == "" {
		return launch.Jobs(ctx)
	}
	s, err := statusOf(ctx, c.Job, false)
	return []launch.Status{s}, err
}

// writeJobs writes a table of jobs.
func writeJobs(to io.Writer, jobs []launch.Status) error {
	return table(to, "JOB\tPEERS\tEPOCH\tSTEP\tWAITING FOR", func(w io.Writer) {
		for _, j := range jobs {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", j.Job, len(j.Members), known(j.Epoch), known(j.Step), some(j.WaitingFor))
		}
	})
}

// statusCommand is elrun status.
type statusCommand struct {
	Job   string `arg:"" optional:"" help:"Name of the job, or its beginning; may be left out if there is only one. A job that has ended within a day tells how."`
	JSON  bool   `name:"json" help:"One JSON object, with all peers."`
	Peers bool   `help:"Show each peer, where there is a line for each host otherwise."`
	Paths bool   `help:"Show which path the data of each pair takes, by hosts, and why no better one; of the pairs with a peer on this host."`
}

// Run shows one job.
func (c *statusCommand) Run(ctx context.Context, t *terminal) error {
	s, err := lastStatusOf(ctx, c.Job, c.Paths)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return writeJSON(t.stdout, s)
	case s.Ended != nil:
		return writeEnded(t.stdout, s, time.Now())
	}
	write := writeHosts
	switch {
	case c.Paths:
		write = writePaths
	case c.Peers:
		write = writePeers
	}
	return writeStatus(t.stdout, s, write)
}

// statusOf returns the status of the named job, or of the only one.
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

// lastStatusOf returns the status of the named job, or of the only one. A job that is named and
// has ended tells how.
func lastStatusOf(ctx context.Context, name string, paths bool) (launch.Status, error) {
	s, err := statusOf(ctx, name, paths)
	if name == "" || !errors.Is(err, launch.ErrNoJob) {
		return s, err
	}
	if last, ended := launch.LastStatus(ctx, name); !errors.Is(ended, launch.ErrNoJob) {
		return last, ended
	}
	return s, err
}

// writeStatus writes what is known of a job: a line about it, one about the time of its last
// step and one about its shares, as far as there is something to say, and a table that write
// makes of its members. What is not known is a dash: a loop of a program's own reports no steps.
// No line is longer than people read: --json has all.
func writeStatus(to io.Writer, s launch.Status, write func(io.Writer, []launch.MemberStatus) error) error {
	to = &narrow{to: to}
	lines := fmt.Sprintf("job %s  epoch %s  step %s  waiting for %s\n", s.Job, known(s.Epoch), wordStep(s), some(s.WaitingFor))
	if measured, predicted := s.StepTime(); measured > 0 {
		lines += "step time " + wordStepTime(measured, predicted) + "\n"
	}
	if s.Balanced != nil {
		lines += "shares " + wordBalanced(*s.Balanced) + "\n"
	}
	if _, err := io.WriteString(to, lines); err != nil {
		return err
	}
	return write(to, s.Members)
}

// writePeers writes a table of all members.
func writePeers(to io.Writer, members []launch.MemberStatus) error {
	return table(to, "RANK\tINDEX\tID\tHOST\tSTATE\tSHARE\tSAMPLES/S\tCOMP MS\tPRED MS\tCOMM MS\tPATH\tSEEN", func(w io.Writer) {
		for _, m := range members {
			writeMember(w, m)
		}
	})
}

// writeEnded writes how a job ended: a line about it, and what is known of the reason and of the
// result, a line each.
func writeEnded(to io.Writer, s launch.Status, now time.Time) error {
	e := *s.Ended
	lines := fmt.Sprintf("job %s  %s with status %d  step %s  after %v, %v ago (%s)\n", s.Job, text(e.Outcome), e.Status, wordStep(s),
		e.At.Sub(e.Began).Round(time.Second/10), now.Sub(e.At).Round(time.Second), e.At.Local().Format(time.DateTime))
	for _, line := range []string{e.Reason, e.Result} {
		if line != "" {
			lines += printable.Line(line) + "\n"
		}
	}
	_, err := io.WriteString(to, lines)
	return err
}

// wordStep words the last step, of how many.
func wordStep(s launch.Status) string {
	if s.Step > 0 && s.Of > 0 {
		return fmt.Sprintf("%d/%d", s.Step, s.Of)
	}
	return known(s.Step)
}

// writeMember writes the row of one member.
func writeMember(w io.Writer, m launch.MemberStatus) {
	share := known(m.Share)
	if m.StepMS > 0 { // it took part in a step, if only to get the result
		share = fmt.Sprint(m.Share)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", ordinal(m.Rank), ordinal(m.Index), text(m.ID), text(m.Host),
		text(m.State), share, figure(m.Speed, 0), figure(m.ComputeMS, 1), figure(m.PredictedMS, 1), figure(m.CommMS, 1), text(m.Path), wordSeen(m.SeenMS))
}

// wordSeen words how long ago a member was heard.
func wordSeen(ms float64) string {
	switch {
	case ms < 0:
		return unknown
	case ms == 0:
		return "now"
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// wordStepTime compares the time of a step with what was predicted, 0 if nothing was.
func wordStepTime(measured, predicted float64) string {
	if predicted <= 0 {
		return fmt.Sprintf("%.1f ms, not predicted", measured)
	}
	return fmt.Sprintf("%.1f ms, predicted %.1f ms (%+.0f %%)", measured, predicted, 100*(measured/predicted-1))
}

// wordBalanced says how the shares changed last, and why.
func wordBalanced(b launch.Balanced) string {
	change := wordShares(b.Shares)
	if len(b.Old) > 0 {
		change = wordShares(b.Old) + " -> " + change
	}
	return fmt.Sprintf("%s since step %d: %s", change, b.Step, printable.Line(b.Reason))
}

// maxShares is how many shares are shown one by one; the table has those of more ranks.
const maxShares = 16

// wordShares lists the shares of the ranks, or what they lie between.
func wordShares(shares []int) string {
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

// unknown stands for what is not known.
const unknown = "-"

// known words a count of which 0 says that nothing is known.
func known[T int | int64 | uint64](n T) string {
	if n == 0 {
		return unknown
	}
	return fmt.Sprint(n)
}

// ordinal words a rank or an index, of which -1 says that there is none.
func ordinal(n int) string {
	if n < 0 {
		return unknown
	}
	return fmt.Sprint(n)
}

// figure words a measured value, of which 0 says that it was not measured.
func figure(v float64, decimals int) string {
	if v <= 0 {
		return unknown
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// text is s, or the dash for none: an empty cell would hide to which column the next one
// belongs. Names and reasons come from other hosts: they must not control the terminal.
func text(s string) string {
	if s == "" {
		return unknown
	}
	return printable.Line(s)
}

// list words a list that may be empty.
func list(names []string) string { return text(strings.Join(names, ",")) }

// table aligns tab-separated rows under a header.
func table(to io.Writer, header string, rows func(io.Writer)) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	rows(w)
	return w.Flush()
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
