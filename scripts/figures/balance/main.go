// Command balance runs every policy of loadbal on every trace of scripts/balsim. It writes the results to docs/balancing.md, with
// a plot for each trace.
//
//	make figures
//	bin/balance docs/balancing
//
// Run the command in the root folder of the repository. The results are the same on every machine.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/scripts/balsim"
)

// peers and steps are the sizes of the runs for the tables. The plots show runs with fewer peers,
// because a plot cannot show 64 lines.
const (
	peers, steps         = 64, 600
	plotPeers, plotSteps = 4, 170
	// recordings is the folder of measured traces.
	recordings = "scripts/balsim/testdata"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "balance:", err)
		os.Exit(1)
	}
}

// run writes all files and prints the ranking.
func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: balance FOLDER")
	}
	text, err := report(".", filepath.Base(args[0]))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	plotted, err := traces(".", plotPeers, plotSteps)
	if err != nil {
		return err
	}
	for _, trace := range plotted {
		if err := plotTrace(trace, filepath.Join(args[0], file(trace))); err != nil {
			return err
		}
	}
	if err := os.WriteFile(args[0]+".md", text, 0o644); err != nil {
		return err
	}
	_, err = out.Write(ranking(text))
	return err
}

// ranking returns the first table in the text.
func ranking(text []byte) []byte {
	from := bytes.Index(text, []byte("| policy | mean"))
	to := bytes.Index(text[from:], []byte("\n\n"))
	return text[from : from+to+1]
}

// file returns the name of a trace's plot.
func file(t *balsim.Trace) string { return strings.ReplaceAll(t.Name, " ", "-") + ".svg" }

// traces returns all traces. Generated traces have the given numbers of peers and steps. Measured
// traces have at most this number of steps. root is the root folder of the repository.
func traces(root string, peers, steps int) ([]*balsim.Trace, error) {
	all := balsim.All(peers, steps)
	for _, r := range []struct{ name, about string }{
		{"short steps", "recorded times of four processes on a machine with two cores that other programs use as well: steps of 50 ms"},
		{"long steps", "recorded times of the same kind with steps of a second, while the load of the machine falls"},
	} {
		text, err := os.ReadFile(filepath.Join(root, recordings, strings.ReplaceAll(r.name, " ", "-")+".txt"))
		if err != nil {
			return nil, err
		}
		t, err := balsim.Recorded(r.name, r.about, bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		t.Pace = t.Pace[:min(steps, len(t.Pace))]
		all = append(all, t)
	}
	return all, nil
}

// runs has a list of runs by the name of the policy, with one run for each trace.
type runs map[string][]*balsim.Run

// simulateAll runs every policy on every trace.
func simulateAll(all []*balsim.Trace) (runs, error) {
	done := make(runs)
	for _, name := range slices.Concat(loadbal.Names(), loadbal.Variants()) {
		for _, t := range all {
			run, err := simulate(t, name)
			if err != nil {
				return nil, err
			}
			done[name] = append(done[name], run)
		}
	}
	return done, nil
}

// simulate runs the policy with the given name.
func simulate(t *balsim.Trace, name string) (*balsim.Run, error) {
	policy, err := loadbal.New(name)
	if err != nil {
		return nil, err
	}
	return balsim.Simulate(t, policy), nil
}

// row is a row of a table: a policy, and a number in thousandths for each trace.
type row struct {
	name    string
	figures []int64
}

// mean returns the mean of the figures.
func (r row) mean() int64 {
	var sum int64
	for _, f := range r.figures {
		sum += f
	}
	return sum / int64(len(r.figures))
}

// table returns a row for each of the policies, with a figure from each run.
func (done runs) table(names []string, figure func(*balsim.Run) int64) []row {
	var rows []row
	for _, name := range names {
		r := row{name: name}
		for _, run := range done[name] {
			r.figures = append(r.figures, figure(run))
		}
		rows = append(rows, r)
	}
	return rows
}

// write writes the rows in percent. If more is better, the row with the highest mean comes first.
func write(b *bytes.Buffer, all []*balsim.Trace, rows []row, more bool) {
	slices.SortStableFunc(rows, func(x, y row) int {
		if more {
			return int(y.mean() - x.mean())
		}
		return int(x.mean() - y.mean())
	})
	b.WriteString("| policy | mean |")
	for _, t := range all {
		fmt.Fprintf(b, " %s |", t.Name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(all)+1) + "\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |", r.name, percent(r.mean()))
		for _, f := range r.figures {
			fmt.Fprintf(b, " %s |", percent(f))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// percent returns a number of thousandths as a percentage.
func percent(f int64) string { return fmt.Sprintf("%d.%d", f/10, f%10) }
