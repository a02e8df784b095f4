package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// mnist returns the paths of the program examples/mnist and of the data.
func mnist(t *testing.T) (program, data string) {
	t.Helper()
	data, err := filepath.Abs("../../data/mnist")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no MNIST in data/mnist: make data fetches it")
	}
	return process.Example(t, "mnist"), data
}

// train trains on MNIST for a number of steps. It returns the step events of each peer, in the order of the steps.
func train(t *testing.T, peers, steps int, args ...string) [][]event.Step {
	t.Helper()
	program, data := mnist(t)
	log := filepath.Join(t.TempDir(), "events.jsonl")
	_, stderr, status := process.Command(t, append([]string{"-n", strconv.Itoa(peers), "--listen", "local", "--events", log, "--",
		program, "--data", data, "--steps", strconv.Itoa(steps)}, args...)...)
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := make([][]event.Step, peers)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e event.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		body, ok := e.Body.(event.Step)
		if !ok {
			continue
		}
		if e.Step != int64(len(all[e.Index])+1) {
			t.Fatalf("peer %d reports step %d after %d", e.Index, e.Step, len(all[e.Index]))
		}
		all[e.Index] = append(all[e.Index], body)
	}
	for i, s := range all {
		if len(s) != steps {
			t.Fatalf("peer %d of %d reported %d of %d steps", i, peers, len(s), steps)
		}
	}
	return all
}

// The number of peers changes only the order of sums. All peers have the same bits after every step.
func TestSameTrainingAtOneAndFourPeers(t *testing.T) {
	// For a softmax model the loss is a smooth function of the sums, so only rounding remains, 1e-7 of the losses.
	const rounding = 1e-5
	if worst := lossDifference(t, "--model", "softmax"); worst > rounding {
		t.Errorf("softmax: losses differ by %g of their value, want at most %g", worst, rounding)
	}
	// An MLP is not smooth. If the input of a unit is within a rounding error of zero, the unit may be active with one peer and
	// inactive with four. Then losses drift apart by 0.001 in the end, for a fifth to a third of the seeds, even with one peer
	// that adds in another order. A mistake in the sums would show with every seed.
	const tolerance, most = 1e-4, 1e-2
	best := 1.0
	for seed := 1; seed <= 10 && best > tolerance; seed++ {
		worst := lossDifference(t, "--seed", strconv.Itoa(seed))
		if worst > most {
			t.Errorf("seed %d: losses differ by %g of their value, want at most %g", seed, worst, most)
		}
		best = min(best, worst)
	}
	if best > tolerance {
		t.Errorf("with each of ten seeds losses differ by %g of their value or more, want at most %g", best, tolerance)
	}
}

// lossDifference trains with one and with four peers. It returns the largest relative difference of the losses of a step.
func lossDifference(t *testing.T, args ...string) (worst float64) {
	t.Helper()
	const steps = 100
	alone, group := train(t, 1, steps, args...)[0], train(t, 4, steps, args...)
	for i := range alone {
		for peer := range group {
			if group[peer][i].Digest != group[0][i].Digest {
				t.Errorf("step %d: digest %s at peer %d, %s at peer 0", i+1, group[peer][i].Digest, peer, group[0][i].Digest)
			}
		}
		worst = max(worst, math.Abs(group[0][i].Loss-alone[i].Loss)/alone[i].Loss)
		if err := accounted(group, i); err != nil {
			t.Errorf("step %d: %v", i+1, err)
		}
	}
	t.Logf("%v: losses of %d steps differ by at most %.2g of their value", args, steps, worst)
	return worst
}

// accounted returns an error unless the peers contributed every microbatch of a step once.
func accounted(group [][]event.Step, i int) error {
	var ranges [][2]int
	samples := 0
	for _, steps := range group {
		ranges = append(ranges, steps[i].Microbatches...)
		samples += steps[i].ShareSamples
	}
	slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
	end := 0
	for _, r := range ranges {
		if r[0] != end {
			return fmt.Errorf("microbatches %v leave a gap or overlap", ranges)
		}
		end = r[1]
	}
	if samples != group[0][i].Samples {
		return fmt.Errorf("peers contributed %d samples, the step has %d", samples, group[0][i].Samples)
	}
	return nil
}
