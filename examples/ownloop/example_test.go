package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/collective"
	ownloop "github.com/elrun/elrun/examples/ownloop"
	"github.com/elrun/elrun/launch"
)

type Model = ownloop.Model

// A training loop before elrun is added.
func Example_before() {
	train := func(m *Model, steps int64) error {
		for m.Steps < steps {
			sum := m.Gradient(0, 1) // over all samples of the step
			m.Commit(sum)
		}
		return nil
	}

	var m Model
	err := train(&m, 200)
	fmt.Printf("%.2f %v\n", m.Weights, err)
	// Output: [1.00 -2.00 3.00] <nil>
}

// The same loop on any number of peers, which may come, go and die meanwhile. Started
// alone it does what it did.
func Example_after() {
	train := func(ctx context.Context, m *Model, steps int64) error {
		g, err := launch.Init(ctx) // a peer of the job under elrun, alone otherwise
		if err != nil {
			return err
		}
		defer g.Close()
		g.Hold(m, nil) // how to copy it: m has Step, Save and Load
		s, err := g.Next(ctx, 0)
		for err == nil && m.Steps < steps {
			sum := m.Gradient(s.Rank, s.Comm.Size()) // over every Size-th sample of the step
			if collective.AllReduce(ctx, s.Comm, sum[:], sum[:], collective.Sum[float64]) == nil {
				m.Commit(sum)
				err = g.Committed(m.Steps)
			}
			if leave, lost := s.Boundary(ctx); err == nil && (leave || lost != nil) {
				s, err = g.Next(ctx, s.View.Epoch) // without the dead, with those who came
			}
		}
		return err
	}

	var m Model
	err := train(context.Background(), &m, 200)
	fmt.Printf("%.2f %v\n", m.Weights, err)
	// Output: [1.00 -2.00 3.00] <nil>
}

// lines returns the lines of a part of a file, which ends before the line end, without
// their indentation.
func lines(t *testing.T, file, begin, end string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := bytes.Cut(b, []byte(begin+"\n"))
	part, _, ended := bytes.Cut(rest, []byte("\n"+end+"\n"))
	if !ok || !ended {
		t.Fatalf("%s has no %q or no %q after it", file, begin, end)
	}
	var all []string
	for line := range strings.Lines(string(part)) {
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// What elrun adds to a loop are few lines, and those that the README shows.
func TestAddedLines(t *testing.T) {
	const file, readme = "example_test.go", "../../README.md"
	before := lines(t, file, "\ttrain := func(m *Model, steps int64) error {", "\t}")
	after := lines(t, file, "\ttrain := func(ctx context.Context, m *Model, steps int64) error {", "\t}")
	if added := len(after) - len(before); added > 15 {
		t.Errorf("%d lines more than before, want at most 15", added)
	}
	if shown := lines(t, readme, "func train(m *Model, steps int64) error {", "}"); !slices.Equal(shown, before) {
		t.Errorf("the README shows %q", shown)
	}
	if shown := lines(t, readme, "func train(ctx context.Context, m *Model, steps int64) error {", "}"); !slices.Equal(shown, after) {
		t.Errorf("the README shows %q", shown)
	}
}
