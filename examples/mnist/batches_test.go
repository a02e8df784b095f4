package main

import (
	"fmt"
	"strings"
	"testing"
)

// The batch grows, so the job takes fewer steps. A job that resumes ends with the same weights.
func TestGrowingBatches(t *testing.T) {
	data, dir := tinyMNIST(t), t.TempDir()
	args := []string{"--exact", "--data", data, "--microbatch", "2", "--hidden", "10", "--passes", "40", "--lr", "0.5"}
	fixed := trained(t, append(args, "--global-batch", "4")...)
	whole := trained(t, append(args, "--global-batch", "4-50")...)
	if steps(t, whole.stdout) >= steps(t, fixed.stdout) {
		t.Errorf("output %q, with one batch %q", whole.stdout, fixed.stdout)
	}
	args = append(args, "--global-batch", "4-50")
	saving := trained(t, append(args, "--checkpoint", dir, "--checkpoint-every", "50")...)
	if saving.sha256 != whole.sha256 {
		t.Errorf("%s, with checkpoints %s", whole.sha256, saving.sha256)
	}
	_, step := newestIn(t, dir)
	checkResumed(t, trained(t, append(args, "--resume", dir)...), whole, step)
	if root := trained(t, append(args, "--growth-rate", "sqrt")...); root.sha256 == whole.sha256 {
		t.Error("--growth-rate changes nothing")
	}
}

func TestGrowthArguments(t *testing.T) {
	for args, word := range map[string]string{
		"--global-batch=128-":                         "no range of samples",
		"--global-batch=128-128":                      "has to end above 128",
		"--global-batch=128-64":                       "has to end above 128",
		"--global-batch=0-64":                         "0 is less than 1",
		"--global-batch=-64":                          "neither a number of samples nor a range",
		"--global-batch=128-256-512":                  "no range of samples",
		"--global-batch=many":                         "neither a number of samples nor a range",
		"--growth-rate=sqrt":                          "give --global-batch a range",
		"--global-batch=4-8 --growth-rate=cubic":      "must be one of",
		"--global-batch=4-8 --local=3":                "does not go with --local",
		"--global-batch=4-8 --compress=topk:0.1:2bit": "does not go with --compress topk",
	} {
		status, out, errs := command(t, t.Context(), strings.Fields(args)...)
		if status != statusUsage || out != "" || !strings.Contains(errs, word) {
			t.Errorf("%s: status %d, errors %q; want %q in them", args, status, errs, word)
		}
	}
}

func FuzzBatches(f *testing.F) {
	for _, text := range []string{"512", "128-1024", "", "-", "1-2-3", "-5", "5-", "9223372036854775807", "+1-+2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b, again batches
		if b.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b || b.first < 1 || b.max != 0 && b.max <= b.first {
			t.Errorf("%q is %v, and that %v (%v)", text, b, again, err)
		}
	})
}

// steps returns the number of steps in the last line of a job.
func steps(t *testing.T, stdout string) (n int) {
	t.Helper()
	at := strings.LastIndex(stdout, "done ")
	if _, err := fmt.Sscanf(stdout[max(0, at):], "done steps=%d", &n); err != nil {
		t.Fatalf("output %q: %v", stdout, err)
	}
	return n
}
