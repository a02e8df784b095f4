package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/perfetto"
	"github.com/elrun/elrun/testing/process"
)

// traceOf reads a trace, in which the parts of each step add up to it within 5 %. It returns the number of steps of each peer.
func traceOf(t *testing.T, file string) (steps []int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := perfetto.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, track := range trace.Of("", "step") {
		n := 0
		for i, e := range track.Events {
			if e.Depth > 0 {
				continue
			}
			n++
			sum, length := 0.0, float64(e.End-e.Begin)
			for _, part := range track.Events[i+1:] {
				if part.Depth == 0 {
					break
				}
				sum += float64(part.End - part.Begin)
			}
			if sum < 0.95*length || sum > length {
				t.Errorf("%s of %s: %.0f ns, and its parts %.0f ns", e.Name, track.Name, length, sum)
			}
		}
		steps = append(steps, n)
	}
	return steps
}

// A job writes a trace from its start, while a second command traces some steps of it.
func TestTrace(t *testing.T) {
	program, data := mnist(t)
	dir := t.TempDir()
	whole, some := filepath.Join(dir, "whole.pftrace"), filepath.Join(dir, "some.pftrace")
	e := &elrun{job: process.NewJob(t)}
	e.launch(t, []string{"-n", "2", "--name", e.job.Name, "--listen", "local", "--trace", whole, "--", program, "--data", data, "--steps", "1000000"})
	process.Until(t, "steps", func() bool {
		status, _, _ := process.Command(t, "status", e.job.Name)
		return strings.Contains(status, "samples/s")
	})
	if _, stderr, status := process.Command(t, "trace", e.job.Name, "--steps", "5", "-o", some); status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	if steps := traceOf(t, some); len(steps) != 2 || min(steps[0], steps[1]) < 3 || max(steps[0], steps[1]) > 5 {
		t.Errorf("steps of each peer %v, want 5 and 5", steps)
	}
	if _, stderr, status := process.Command(t, "stop", e.job.Name); status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	e.Wait(t)
	if steps := traceOf(t, whole); len(steps) != 2 || min(steps[0], steps[1]) < 5 {
		t.Errorf("steps of each peer %v", steps)
	}
}
