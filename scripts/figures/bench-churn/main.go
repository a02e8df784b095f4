// Bench-churn writes what make bench-churn has measured: a table in docs/benchmarks.md and docs/benchmarks/churn.svg.
//
//	bench-churn DOCS     reads DOCS/benchmarks/churn.json
//
// python/bench/churn runs the systems and writes that file.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// study is what python/bench/churn/run.py writes.
type study struct {
	Machine string
	Load    float64 // mean number of runnable processes
	Seconds float64 // of a run
	Every   float64 // seconds between the points of a curve
	Systems []system
	Runs    []run
	Alone   [][][2]float64 // of each seed of one process, after each hundred steps: the loss, and the part that is right
}

type system struct {
	Name, Needs string
	Lines       int
}

// run is a run of a system. Times are in milliseconds; nil is a time that did not end before the next event.
type run struct {
	System         string
	Kills          []*float64 // time without a new step
	Join           *float64
	Step           *float64 // median step before the first kill
	Goodput        float64  // samples a second
	Lost, Repeated *int     // samples; nil if the system has no plan of them
	Result         *struct {
		Step        int
		Loss, Right float64
	}
	Curve []int // samples that have counted
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bench-churn DOCS")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-churn:", err)
		os.Exit(1)
	}
}

// The table in docs/benchmarks.md is between these lines.
const (
	tableBegin = "<!-- bench-churn: begin -->\n"
	tableEnd   = "<!-- bench-churn: end -->\n"
)

// write writes the table and the drawing of DOCS/benchmarks/churn.json, and prints the table.
func write(docs string) error {
	text, err := os.ReadFile(filepath.Join(docs, "benchmarks", "churn.json"))
	if err != nil {
		return err
	}
	var s study
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("churn.json: %w", err)
	}
	if err := s.plot(filepath.Join(docs, "benchmarks", "churn.svg")); err != nil {
		return err
	}
	table := s.table()
	fmt.Print(table)
	page := filepath.Join(docs, "benchmarks.md")
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		return fmt.Errorf("%s has no place for the table: put %q and %q into it", page, tableBegin, tableEnd)
	}
	return os.WriteFile(page, []byte(before+tableBegin+table+tableEnd+after), 0o644)
}
