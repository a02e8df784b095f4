package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elrun/elrun/cmd/elrun/dashboard"
	"github.com/elrun/elrun/cmd/elrun/summary"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// reportCommand is the command elrun report. It needs no running job.
type reportCommand struct {
	Logs []string `arg:"" help:"Event logs of the elruns of a job (--events), plain or compressed by gzip; - is standard input."`
	JSON bool     `name:"json" help:"All that is known of the job, as one JSON object; with --compare the rows of its table."`
	CSV  bool     `name:"csv" help:"The figures over the steps, as comma-separated values."`
	// Compare makes each log a run of its own.
	Compare bool   `help:"Compare runs, one log each: results, goodput, speed, the loss at the same steps, samples and times, and the settings that differ."`
	Page    string `name:"output" short:"o" placeholder:"FILE.html" help:"Write the page of the job, or with --compare of the runs, as one file that any browser shows; - is standard output."`
}

// Validate implements kong's validation: its errors are usage errors.
func (r *reportCommand) Validate() error {
	forms := 0
	for _, given := range []bool{r.JSON, r.CSV, r.Compare && !r.JSON || r.Page != ""} {
		if given {
			forms++
		}
	}
	switch {
	case forms > 1:
		return errors.New("--json, --csv, and --compare or -o: want one of them")
	case r.Compare && len(r.Logs) < 2:
		return errors.New("--compare: name the logs of two runs or more")
	case r.Compare && r.Page != "" && len(r.Logs) > dashboard.MaxRuns:
		return fmt.Errorf("--compare -o: a page has at most %d runs: leave -o out", dashboard.MaxRuns)
	}
	return nil
}

// Run reads the logs and prints what the job was.
func (r *reportCommand) Run(t *terminal) error {
	if r.Compare {
		return r.compare(t)
	}
	s, found, err := readLogs(r.Logs, t.stdin)
	if err != nil {
		return err
	}
	switch {
	case r.JSON:
		return writeJSON(t.stdout, s)
	case r.CSV:
		return writeSeries(t.stdout, s)
	case r.Page != "":
		return writePage(r.Page, t.stdout, func(to io.Writer) error { return dashboard.WriteReport(to, s) })
	}
	_, err = io.WriteString(t.stdout, summary.Of(s, found))
	return err
}

// compare prints a table of runs, or writes a page of them.
func (r *reportCommand) compare(t *terminal) error {
	var runs []summary.Run
	for _, name := range r.Logs {
		s, _, err := readLogs([]string{name}, t.stdin)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		runs = append(runs, summary.Run{Name: r.runName(name), Job: s})
	}
	if r.Page != "" {
		return writePage(r.Page, t.stdout, func(to io.Writer) error { return dashboard.WriteComparison(to, runs) })
	}
	c := summary.Compare(runs)
	if r.JSON {
		return writeJSON(t.stdout, c)
	}
	_, err := io.WriteString(t.stdout, c.String())
	return err
}

// runName returns a name for the run of a log: that of the file, or the path if another log has the same name.
func (r *reportCommand) runName(log string) string {
	for _, other := range r.Logs {
		if other != log && filepath.Base(other) == filepath.Base(log) {
			return log
		}
	}
	return strings.TrimSuffix(filepath.Base(log), filepath.Ext(log))
}

// readLogs reads the event logs of a job; "-" is stdin.
func readLogs(names []string, stdin *os.File) (s timeline.Snapshot, found timeline.Lines, err error) {
	logs, done, err := openLogs(names, stdin)
	if err != nil {
		return s, found, err
	}
	defer done()
	j := timeline.New()
	if found, err = timeline.Read(j, logs...); err != nil {
		return s, found, fmt.Errorf("read the event logs: %w", err)
	}
	if found.Events == 0 {
		return s, found, errNoEvents
	}
	return j.Snapshot(), found, nil
}

// openLogs opens event logs; "-" is stdin. done closes them.
func openLogs(names []string, stdin *os.File) (logs []io.Reader, done func(), err error) {
	var files []*os.File
	done = func() {
		for _, f := range files {
			_ = f.Close() // it was only read
		}
	}
	for _, name := range names {
		if name == "-" && stdin != nil {
			logs = append(logs, stdin)
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("%w: event log: %w", launch.ErrOptions, err)
		}
		files, logs = append(files, f), append(logs, f)
	}
	return logs, done, nil
}

// errNoEvents reports logs without an event.
var errNoEvents = errors.New("no events in these logs: name files that --events has written")

// writePage writes a page to a file, "-" for standard output. An existing file is replaced only by a whole page.
func writePage(name string, stdout io.Writer, write func(io.Writer) error) error {
	if name == "-" {
		return write(stdout)
	}
	var page strings.Builder
	if err := write(&page); err != nil {
		return err
	}
	if err := replaceFile(name, page.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// writeSeries writes the series of a job over its steps, with up to 512 rows.
func writeSeries(to io.Writer, s timeline.Snapshot) error {
	w := csv.NewWriter(to)
	head := []string{"first_step", "last_step", "time", "members", "loss", "samples", "samples_per_s", "step_ms", "slowest_ms", "goodput"}
	if err := w.Write(head); err != nil {
		return err
	}
	if n := len(s.Series.BySteps); n > 0 {
		for _, p := range s.Series.BySteps[n-1].Points {
			row := []string{strconv.FormatInt(p.First, 10), strconv.FormatInt(p.Last, 10), p.Time.UTC().Format("2006-01-02T15:04:05.000Z")}
			for _, x := range []float64{p.Members, p.Loss, float64(p.Samples), p.SamplesS, p.StepMS, p.SlowMS, p.Uses.Goodput()} {
				row = append(row, strconv.FormatFloat(x, 'g', 6, 64))
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}
