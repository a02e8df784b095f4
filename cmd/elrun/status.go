package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/elrun/elrun/launch"
)

// psCommand is elrun ps.
type psCommand struct {
	JSON bool `name:"json" help:"One JSON array."`
}

// Run lists the jobs.
func (c *psCommand) Run(ctx context.Context, t *terminal) error {
	jobs, err := launch.Jobs(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(t.stdout, jobs)
	}
	return table(t.stdout, "JOB\tPEERS\tEPOCH\tSTEP\tWAITING FOR", func(w io.Writer) {
		for _, j := range jobs {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", j.Job, len(j.Members), j.Epoch, j.Step, list(j.WaitingFor))
		}
	})
}

// statusCommand is elrun status.
type statusCommand struct {
	Job  string `arg:"" optional:"" help:"Name of the job; may be left out if there is only one."`
	JSON bool   `name:"json" help:"One JSON object."`
}

// Run shows one job.
func (c *statusCommand) Run(ctx context.Context, t *terminal) error {
	s, err := launch.QueryStatus(ctx, c.Job)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(t.stdout, s)
	}
	if _, err := fmt.Fprintf(t.stdout, "job %s  epoch %d  step %d  waiting for %s\n",
		s.Job, s.Epoch, s.Step, list(s.WaitingFor)); err != nil {
		return err
	}
	return table(t.stdout, "RANK\tINDEX\tID\tHOST\tSTATE\tSHARE\tSAMPLES/S\tCOMPUTE MS\tCOMM MS\tPATH", func(w io.Writer) {
		for _, m := range s.Members {
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%d\t%.0f\t%.1f\t%.1f\t%s\n", m.Rank, m.Index, m.ID, m.Host,
				m.State, m.Share, m.Speed, m.ComputeMS, m.CommMS, m.Path)
		}
	})
}

// table aligns tab-separated rows under a header.
func table(to io.Writer, header string, rows func(io.Writer)) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	rows(w)
	return w.Flush()
}

// list words a list that may be empty.
func list(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ",")
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
