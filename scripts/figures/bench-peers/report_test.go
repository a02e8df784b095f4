package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample returns a study with two sizes and two rounds, and with one run on several hosts. Open MPI takes three times as long as
// elrun, Gloo twice as long.
func sample() *study {
	s := &study{Missing: map[string]string{}, Machine: machine{Day: "2001-02-03", CPU: "abacus", Cores: 2, OpenMPI: "mpirun 4.1", Ptrace: "1"}}
	note := func(part, side string, round, n, bytes int, us float64) {
		s.Records = append(s.Records, record{part, side, round, result{N: n, Bytes: bytes, P50: us}})
	}
	for round := range 2 {
		for _, bytes := range []int{kib, 64 * mib} {
			us := float64(bytes) / 1000 * float64(round+1)
			note(partHost, elrunHeap, round, 2, bytes, us)
			note(partHost, glooTCP, round, 2, bytes, 2*us)
			note(partHost, mpiShared, round, 2, bytes, 3*us)
		}
	}
	note(partHosts, elrunSealed, 0, 4, kib, 400)
	note(partHosts, elrunSealed, 0, 4, 64*mib, ringBound(4, 64*mib)/0.9)
	note(partHosts, glooTCP, 0, 4, 64*mib, ringBound(4, 64*mib)/0.95)
	note(partFree, elrunPlain, 0, 4, 64*mib, 100e3)
	note(partFree, glooTCP, 0, 4, 64*mib, 150e3)
	note(partFree, elrunSealed, 0, 4, 64*mib, 250e3)
	note(partTwo, elrunSealed, 0, 4, mib, 1.05*mib)
	note(partDelay, elrunSealed, 0, 2, delayBytes, 5e6)
	for i := range s.Records {
		switch r := &s.Records[i]; r.Side {
		case elrunHeap:
			r.RSSAnon = 2*int64(r.Bytes) + 50*mib
		case mpiShared:
			r.Copy, r.Readable = "cma", true
		}
	}
	return s
}

// The report in docs equals the output of the current code for the stored measurements, and its
// plots exist.
func TestDocsAreCurrent(t *testing.T) {
	s, err := load("../../../docs/benchmarks/figures.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Records) == 0 {
		return // nothing has been measured yet
	}
	for file, want := range map[string]string{"benchmarks/allreduce.md": s.report(), "benchmarks.md": summaryBegin + s.summary() + summaryEnd} {
		if docs, err := os.ReadFile("../../../docs/" + file); err != nil || !strings.Contains(string(docs), want) {
			t.Errorf("docs/%s is out of date (%v): run make figures, then bin/bench-peers --report", file, err)
		}
	}
	for _, n := range s.ranks(partHost) {
		if _, err := os.Stat(filepath.Join("../../../docs/benchmarks", plotName(n))); err != nil {
			t.Error(err)
		}
	}
}

func TestGoals(t *testing.T) {
	got := sample().goals()
	for _, want := range []string{
		"| elrun shm: ordinary slices, long vectors | Open MPI shm | 2 | 64 MiB | >= 2.0 | 3.00 (3.00-3.00) | yes |\n",
		"| elrun shm: ordinary slices, long vectors | Gloo | 2 | 64 MiB | >= 2.5 | 2.00 (2.00-2.00) | **no** |\n",
		"| elrun shm, Alloc: slices from Alloc | Open MPI shm | 2 | 64 MiB | >= 4.0 | - | not measured |\n",
		"| elrun shm: short vectors | Open MPI shm | 2 | 1 KiB | >= 0.8 | 3.00 (3.00-3.00) | yes |\n",
		"| elrun shm: memory of its own | - | 2 | 64 MiB | <= 176 MiB | 178 MiB | **no** |\n",
		"| elrun direct: four hosts | 500 us | 4 | 1 KiB | >= 1.0 | 1.25 | yes |\n",
		"| elrun direct: four hosts | the ring's bound | 4 | 64 MiB | >= 0.96 | 0.90 | **no** |\n",
		"| elrun direct, plain: four hosts, unshaped | Gloo | 4 | 64 MiB | >= 1.0 | 1.50 (1.50-1.50) | yes |\n",
		"| elrun direct: four hosts, unshaped | Gloo | 4 | 64 MiB | >= 0.75 | 0.60 (0.60-0.60) | **no** |\n",
		"| two hosts of two ranks: bytes sent | the vector once | 4 | 1 MiB | <= 1.07 | 1.05 | yes |\n",
		"| elrun direct: 100 ms round trip | 500 Mbit/s | 2 | 256 MiB | >= 0.80 | 0.86 | yes |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no row %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "| 16 MiB |") {
		t.Errorf("a row of a size that was not measured:\n%s", got)
	}
}

func TestReport(t *testing.T) {
	s := sample()
	s.Missing[mpiTCP] = "n = 2: no route | to host\nmore"
	s.Missing[partHosts+", "+elrunPlain] = "no root\nmore"
	got := s.report()
	for _, want := range []string{
		"| machine | abacus, 2 cores",
		"single copy: cma (ranks can read each other's memory; ptrace_scope 1)",
		"**did not run everywhere**: n = 2: no route / to host |\n",
		"![times and ratios](ranks-2.svg)",
		"| side | 1 KiB | 64 MiB |\n",
		"| elrun shm | 1.54 | 100,663 |\n",
		"| Open MPI shm | 3.00 (3.00-3.00) | 3.00 (3.00-3.00) |\n",
		"| elrun shm | 178 |\n",
		"| 64 MiB | 842,012 | 935,569 (90.0 %) | - | 886,329 (95.0 %) |\n",
		"| elrun direct, plain | Gloo | elrun direct | Open MPI TCP |\n| --- | --- | --- | --- |\n| 100,000 | 150,000 | 250,000 | - |\n",
		"sends 1,101,004 bytes",
		"takes 5.00 s, which is 429 Mbit/s each way, 86 % of the link",
		"Not measured: four hosts, elrun direct, plain: no root\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "NaN") {
		t.Errorf("NaN in\n%s", got)
	}
}

// The report of an empty study contains no numbers.
func TestEmptyReport(t *testing.T) {
	if got := (&study{}).report(); strings.Contains(got, "NaN") || !strings.Contains(got, "single copy: unknown") {
		t.Errorf("report:\n%s", got)
	}
}

// newDocs returns a folder with a page for the summary.
func newDocs(t *testing.T) string {
	t.Helper()
	docs := t.TempDir()
	if err := os.WriteFile(filepath.Join(docs, "benchmarks.md"), []byte("before\n"+summaryBegin+"old\n"+summaryEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return docs
}

// The summary replaces the previous summary, and the other text of the page does not change.
func TestSummary(t *testing.T) {
	docs := newDocs(t)
	page := filepath.Join(docs, "benchmarks.md")
	for range 2 {
		if err := sample().write(docs); err != nil {
			t.Fatal(err)
		}
	}
	want := "before\n" + summaryBegin + sample().summary() + summaryEnd + "after\n"
	if text, err := os.ReadFile(page); err != nil || string(text) != want {
		t.Errorf("%v, page:\n%s", err, text)
	}
	if err := os.WriteFile(page, []byte("no place"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sample().write(docs); err == nil {
		t.Error("written to a page that has no place for it")
	}
}

func TestPlotsAreImages(t *testing.T) {
	docs := newDocs(t)
	if err := sample().write(docs); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, "benchmarks", plotName(2)))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"<svg", "Open MPI shm", "microseconds by bytes"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %q in the plot", want)
		}
	}
}

// A plot can be drawn without some sides, even without elrun in shared memory, and with only one
// size.
func TestPlotOfAFew(t *testing.T) {
	s := &study{}
	s.Records = append(s.Records, record{partHost, glooTCP, 0, result{N: 4, Bytes: kib, P50: 7}})
	if err := s.plot(4, filepath.Join(t.TempDir(), plotName(4))); err != nil {
		t.Fatal(err)
	}
}

func TestReachedText(t *testing.T) {
	if got := reachedText(1, true) + reachedText(1, false) + reachedText(math.NaN(), true); got != "yes**no**not measured" {
		t.Errorf("got %q", got)
	}
}

// The bounds are checked for 64 MiB over four hosts at 1 Gbit/s, and for a link of 500 Mbit/s.
func TestBounds(t *testing.T) {
	if got := ringBound(4, 64*mib); math.Abs(got-842012) > 1 {
		t.Errorf("ring: %v us", got)
	}
	if got := linkRatio(62.5e6, 1e6); got != 1 {
		t.Errorf("link: %v", got)
	}
}
