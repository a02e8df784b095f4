package e2e

import (
	"slices"
	"strconv"
	"testing"
)

// In each step another one of four peers of a host needs 3 s for its share, and the others a twentieth of a
// second. They take what it has not begun, unless they stand still for these seconds in each step. In
// exact mode the weights are those of one peer, and the log has each microbatch once.
func TestStealing(t *testing.T) {
	tr := newTrial(t)
	const steps, batch, micro = 12, 256, 4
	args := []string{"--exact", "--global-batch", strconv.Itoa(batch), "--microbatch", strconv.Itoa(micro), "--balance", "equal", "--steps", strconv.Itoa(steps)}
	want := tr.job(t, 1, args...).sha
	r := tr.job(t, 4, append(args, "--pace", "1ms", "--slow", "random:50")...)
	stolen := 0
	for i := range steps {
		if err := r.whole(i); err != nil {
			t.Errorf("step %d: %v", i+1, err)
		}
		for _, of := range r.steps {
			stolen += of[i].Stolen
		}
	}
	t.Logf("%d of %d microbatches were stolen", stolen, steps*batch/micro)
	if r.sha == "" || r.sha != want {
		t.Errorf("weights %q, want those of one peer, %q", r.sha, want)
	}
	if stolen == 0 {
		t.Error("nothing was stolen")
	}
}

// job runs bin/mnist with a small model and the given number of peers.
func (tr *trial) job(t *testing.T, peers int, args ...string) *trained {
	t.Helper()
	return tr.run(t, peers, slices.Concat([]string{tr.program, "--data", tr.data, "--model", "softmax"}, args))
}
