package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The summary in docs/benchmarks.md is between these lines.
const (
	summaryBegin = "<!-- bench-peers: begin -->\n"
	summaryEnd   = "<!-- bench-peers: end -->\n"
)

// write writes the report and its plots. It also writes the summary to benchmarks.md, which must contain the enclosing lines.
func (s *study) write(docs string) error {
	folder := filepath.Join(docs, "benchmarks")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, n := range s.ranks(partHost) {
		if err := s.plot(n, filepath.Join(folder, plotName(n))); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "allreduce.md"), []byte(s.report()), 0o644); err != nil {
		return err
	}
	page := filepath.Join(docs, "benchmarks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), summaryBegin)
	_, after, closed := strings.Cut(rest, summaryEnd)
	if !found || !closed {
		return fmt.Errorf("%s has no place for the summary: put %q and %q into it", page, summaryBegin, summaryEnd)
	}
	return os.WriteFile(page, []byte(before+summaryBegin+s.summary()+summaryEnd+after), 0o644)
}

// summary returns the table at the top of benchmarks.md, with the times of four ranks.
func (s *study) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %d cores, four ranks on one host, microseconds:\n\n", s.Machine.CPU, s.Machine.Cores)
	s.timeTable(&b, 4)
	b.WriteString("\n")
	return b.String()
}

func plotName(n int) string { return fmt.Sprintf("ranks-%d.svg", n) }

// report returns the text of the report.
func (s *study) report() string {
	var b strings.Builder
	b.WriteString(introduction)
	s.about(&b)
	b.WriteString("\n## Goals\n\nAgainst another side the figure is the time of the other side divided by the time of elrun: above 1 elrun is faster. In brackets are the quartiles over the rounds.\n\n")
	b.WriteString(s.goals())
	s.memory(&b)
	for _, n := range s.ranks(partHost) {
		fmt.Fprintf(&b, "\n## %d ranks on one host\n\n![times and ratios](%s)\n\nMedians in microseconds:\n\n", n, plotName(n))
		s.timeTable(&b, n)
		b.WriteString("\nThe time of each side divided by the time of `" + elrunHeap + "`:\n\n")
		s.ratioTable(&b, n)
	}
	s.hostsReport(&b)
	return b.String()
}

const introduction = `# AllReduce beside Open MPI and Gloo

Made by ` + "`make bench-peers` (scripts/figures/bench-peers)" + `; do not edit. The figures behind it
are in [figures.json](figures.json); [benchmarks](../benchmarks.md) has the summary and what limits them.

AllReduce of float32, sum. The sides run in one go and take turns, in several rounds, and each round begins with
another side. The sides over sockets, which take long, have a turn in every fourth round only. All sides do the same, out of place
with ordinary heap buffers: they change each element of the input and overwrite each element of the output, pass a
barrier, make one timed call, pass another barrier, and check each element of the result. The second barrier is for
more ranks than cores: without it the check of one rank would be in the time of another. The time of a call is the time of its slowest rank. The
figure of a round is the median over its calls (10 of 16 MiB and more, 50 of up to 1 MiB, 200 of up to 64 KiB), and
the figure here is the median over the rounds. A ratio is the ratio of the medians over the rounds in which both sides
had a turn. The exception is Gloo: its call is in place, with one tensor for source and destination, and is timed without the
copy that would keep the source.
`

// about writes the tables of the machine and of the sides.
func (s *study) about(b *strings.Builder) {
	m := s.Machine
	fmt.Fprintf(b, "\n| | |\n| --- | --- |\n| machine | %s, %d cores, Linux %s, TCP by %s |\n| elrun | %s |\n| Open MPI | %s; single copy: %s |\n| Gloo | of torch %s |\n",
		m.CPU, m.Cores, m.Kernel, m.TCP, m.Go, m.OpenMPI, s.singleCopy(), m.Torch)
	b.WriteString("\n| side | what it is |\n| --- | --- |\n")
	for _, one := range sides() {
		about := one.about
		if why := s.Missing[one.name]; why != "" {
			why, _, _ = strings.Cut(why, "\n")
			about += "; **did not run everywhere**: " + strings.ReplaceAll(why, "|", "/")
		}
		fmt.Fprintf(b, "| %s | %s |\n", one.name, about)
	}
}

// singleCopy describes how, and whether, the ranks of Open MPI read each other's memory.
func (s *study) singleCopy() string {
	for _, r := range s.Records {
		if r.Copy != "" && r.Side == mpiShared {
			can := "cannot"
			if r.Readable {
				can = "can"
			}
			return fmt.Sprintf("%s (ranks %s read each other's memory; ptrace_scope %s)", r.Copy, can, s.Machine.Ptrace)
		}
	}
	return "unknown"
}

// memory writes the private memory of a rank with the longest vectors.
func (s *study) memory(b *strings.Builder) {
	sizes := s.sizes(partHost)
	if len(sizes) == 0 {
		return
	}
	bytes := sizes[len(sizes)-1]
	fmt.Fprintf(b, "\n## Memory\n\nAnonymous resident memory of the largest rank with two vectors of %s (Gloo: one), MiB. elrun wants at most %d.\n\n| side |",
		size(bytes), memoryGoal(bytes)>>20)
	ranks := s.ranks(partHost)
	for _, n := range ranks {
		fmt.Fprintf(b, " n = %d |", n)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(ranks)) + "\n")
	for _, one := range sides() {
		if one.name == memoryBound {
			continue
		}
		fmt.Fprintf(b, "| %s |", one.name)
		for _, n := range ranks {
			text := "-"
			if most := s.largest(one.name, n, bytes); most > 0 {
				text = strconv.FormatInt((most+mib-1)/mib, 10)
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString("\n")
	}
}

// timeTable writes a table of times, with a row for each side.
func (s *study) timeTable(b *strings.Builder, n int) {
	s.table(b, func(side string, bytes int) string { return micros(median(s.times(partHost, side, n, bytes))) })
}

// ratioTable compares each side with elrun in shared memory with ordinary slices.
func (s *study) ratioTable(b *strings.Builder, n int) {
	s.table(b, func(side string, bytes int) string {
		return compare(s.times(partHost, side, n, bytes), s.times(partHost, elrunHeap, n, bytes)).String()
	})
}

// table writes a table with a row for each side and a column for each size.
func (s *study) table(b *strings.Builder, cell func(side string, bytes int) string) {
	sizes := s.sizes(partHost)
	b.WriteString("| side |")
	for _, bytes := range sizes {
		fmt.Fprintf(b, " %s |", size(bytes))
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(sizes)) + "\n")
	for _, one := range sides() {
		fmt.Fprintf(b, "| %s |", one.name)
		for _, bytes := range sizes {
			fmt.Fprintf(b, " %s |", cell(one.name, bytes))
		}
		b.WriteString("\n")
	}
}
