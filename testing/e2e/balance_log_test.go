package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/testing/process"
)

// long reports whether the flag -long is set.
func long() bool { return flag.Lookup("long").Value.(flag.Getter).Get().(bool) }

// pick returns the value for the short or the long form of a test.
func pick[T any](short, other T) T {
	if long() {
		return other
	}
	return short
}

// goAhead gives this process and its later child processes real-time priority until the test ends,
// if permitted, because the long forms measure times.
func goAhead(t *testing.T) {
	t.Helper()
	self := strconv.Itoa(os.Getpid())
	if out, err := exec.Command("chrt", "--all-tasks", "--rr", "--pid", "1", self).CombinedOutput(); err != nil {
		t.Logf("no real-time priority, so peers run beside everything else: %v: %s", err, out)
		return
	}
	t.Cleanup(func() {
		if out, err := exec.Command("chrt", "--all-tasks", "--other", "--pid", "0", self).CombinedOutput(); err != nil {
			t.Errorf("back to the usual priority: %v: %s", err, out)
		}
	})
}

// trial runs bin/mnist under elrun with different options, one after the other.
type trial struct {
	program, data string
	wrapper       []string // command that starts the program; empty for none
}

// newTrial builds the programs. It logs the load of the machine, which affects all times.
func newTrial(t *testing.T) *trial {
	t.Helper()
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		t.Logf("load %s", strings.TrimSpace(string(load)))
	}
	tr := &trial{}
	tr.program, tr.data = mnist(t)
	return tr
}

// train runs a job to its end, checks its log, and returns the log's contents. Peers compute the shares that
// the policy gives them: nobody steals.
func (tr *trial) train(t *testing.T, peers int, args ...string) *trained {
	t.Helper()
	r := tr.run(t, peers, slices.Concat(tr.wrapper, []string{tr.program, "--data", tr.data, "--model", "softmax", "--steal", "off"}, args))
	policy := ""
	if at := slices.Index(args, "--balance"); at >= 0 {
		policy = args[at+1]
	}
	r.check(t, policy)
	return r
}

// run runs a program with the given number of peers and additional environment variables.
func (tr *trial) run(t *testing.T, peers int, program []string, env ...string) *trained {
	t.Helper()
	log := filepath.Join(t.TempDir(), "events")
	ctx, cancel := context.WithTimeout(t.Context(), pick(limit, 10*limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, process.Elrun(), append([]string{"run", "-n", strconv.Itoa(peers),
		"--name", process.NewJob(t).Name, "--listen", listen(), "--events", log, "--"}, program...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	r := &trained{steps: make([][]event.Step, peers)}
	if m := regexp.MustCompile(`(?m)^done .* sha256=([0-9a-f]{64})$`).FindSubmatch(out); m != nil {
		r.sha = string(m[1])
	}
	if err := r.read(t, log); err != nil {
		t.Fatalf("%v; elrun printed\n%s", err, out)
	}
	return r
}

// trained has the log of a job that has ended.
type trained struct {
	steps  [][]event.Step // by the peer's local index, and by step minus 1
	stable []time.Time    // by step: when peer 0 reported it
	epochs []uint64       // by step
	told   []event.Shares // events about changed shares
	sha    string         // hash of the weights
}

// read reads the log. It returns an error if a peer has not reported every step.
func (r *trained) read(t *testing.T, path string) error {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e event.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		switch b := e.Body.(type) {
		case event.Step:
			r.steps[e.Index] = append(r.steps[e.Index], b)
			if e.Index == 0 {
				r.stable, r.epochs = append(r.stable, e.Time), append(r.epochs, e.Epoch)
			}
		case event.Shares:
			r.told = append(r.told, b)
		}
	}
	for i, s := range r.steps {
		if len(s) == 0 || len(s) != len(r.steps[0]) {
			return fmt.Errorf("peer %d reported %d steps, peer 0 %d", i, len(s), len(r.steps[0]))
		}
	}
	return nil
}

// rate returns how many samples per second the job trained from a step on. A peer reports a step
// when the next step is committed. No step follows the last step, so the last report does not
// count.
func (t *trained) rate(from int) float64 {
	last, samples := len(t.stable)-1, 0
	for _, s := range t.steps[0][from+2 : last+1] {
		samples += s.Samples
	}
	return float64(samples) / t.stable[last-1].Sub(t.stable[from]).Seconds()
}

// full lists the full steps from a step on. It leaves out the short last step of each pass.
func (t *trained) full(from int) (indices []int) {
	for i, s := range t.steps[0] {
		if i >= from && s.Samples == t.steps[0][0].Samples {
			indices = append(indices, i)
		}
	}
	return indices
}

// stepMS returns the median time of full steps at peer 0, in milliseconds.
func (t *trained) stepMS(from int) float64 {
	var all []float64
	for _, i := range t.full(from) {
		all = append(all, t.steps[0][i].StepMS)
	}
	return median(all)
}

// shares returns the number of microbatches of each peer in a step.
func (t *trained) shares(step int) []int {
	all := make([]int, len(t.steps))
	for i, s := range t.steps {
		for _, m := range s[step].Microbatches {
			all[i] += m[1] - m[0]
		}
	}
	return all
}

// times returns the computing time of each peer in a step, in milliseconds.
func (t *trained) times(step int) (all []float64) {
	for _, s := range t.steps {
		all = append(all, s[step].ComputeMS)
	}
	return all
}

// changes counts the full steps, from a step on, whose shares differ from the shares of the previous full step.
func (t *trained) changes(from int) (n int) {
	full := t.full(from)
	for k := 1; k < len(full); k++ {
		if !slices.Equal(t.shares(full[k]), t.shares(full[k-1])) {
			n++
		}
	}
	return n
}

// spread returns (longest - shortest) / mean of times, in percent.
func spread(times []float64) float64 {
	sum := 0.0
	for _, v := range times {
		sum += v
	}
	return 100 * (slices.Max(times) - slices.Min(times)) * float64(len(times)) / sum
}

// taking returns the times that peers with these costs need for their shares if nothing disturbs them.
func taking(costs []loadbal.Cost, shares []int) (times []float64) {
	for i, c := range costs {
		times = append(times, float64(c.Time(shares[i])))
	}
	return times
}

// excess returns by how many percentage points the spread of times exceeds the spread with the best whole shares.
func excess(costs []loadbal.Cost, microbatches int, times []float64) float64 {
	return spread(times) - spread(taking(costs, loadbal.Optimum(costs, microbatches)))
}
