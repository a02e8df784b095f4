package main

import (
	"fmt"
	"strings"
	"testing"
)

// Local steps improve the model, and a job that resumes from a checkpoint has the same final
// weights as an uninterrupted one.
func TestLocalSteps(t *testing.T) {
	data, dir := tinyMNIST(t), t.TempDir()
	args := []string{"--exact", "--data", data, "--global-batch", "20", "--microbatch", "5", "--hidden", "10", "--passes", "7", "--local", "5"}
	whole := trained(t, args...)
	if !strings.Contains(whole.stdout, "done steps=14 ") || strings.Contains(whole.stdout, "accuracy=0.0") {
		t.Errorf("output %q, want 14 rounds", whole.stdout)
	}
	saving := trained(t, append(args, "--checkpoint", dir, "--checkpoint-every", "5", "--slow", "0:1.5")...)
	if saving.sha256 != whole.sha256 {
		t.Errorf("%s, slowed down and with checkpoints %s", whole.sha256, saving.sha256)
	}
	_, step := newestIn(t, dir)
	checkResumed(t, trained(t, append(args, "--resume", dir)...), whole, step)
	for flag, want := range map[string]bool{"--outer=0.7,0.9": true, "--outer=1,0": false, "--outer=0.7,0.5": false,
		"--lr=0.05": true, "--lr=0.2": false, "--delay": false} {
		got := trained(t, append(args, flag)...)
		if same := got.sha256 == whole.sha256; same != want {
			t.Errorf("%s: %s, by default %s", flag, got.sha256, whole.sha256)
		}
	}
}

// A job with a delay resumes with the sum that was not applied yet.
func TestLocalStepsWithDelay(t *testing.T) {
	data, dir := tinyMNIST(t), t.TempDir()
	args := []string{"--exact", "--data", data, "--global-batch", "20", "--microbatch", "5", "--hidden", "10", "--passes", "7", "--local", "5", "--delay"}
	whole := trained(t, args...)
	saving := trained(t, append(args, "--checkpoint", dir, "--checkpoint-every", "5")...)
	if saving.sha256 != whole.sha256 {
		t.Errorf("%s, with checkpoints %s", whole.sha256, saving.sha256)
	}
	_, step := newestIn(t, dir)
	checkResumed(t, trained(t, append(args, "--resume", dir)...), whole, step)
}

// With --by-speed a single peer has one path per round.
func TestLocalStepsBySpeed(t *testing.T) {
	args := []string{"--data", tinyMNIST(t), "--global-batch", "20", "--microbatch", "5", "--hidden", "10", "--passes", "7", "--local", "5"}
	fixed, whole := trained(t, args...), trained(t, append(args, "--by-speed")...)
	if !strings.Contains(whole.stdout, "done steps=14 ") || whole.sha256 == fixed.sha256 {
		t.Errorf("output %q, want 14 rounds with other weights than %s", whole.stdout, fixed.sha256)
	}
}

func TestLocalArguments(t *testing.T) {
	for args, word := range map[string]string{
		"--local=-1":                    "is negative",
		"--outer=1,0":                   "add --local N",
		"--delay":                       "add --local N",
		"--by-speed":                    "add --local N",
		"--local=2 --by-speed --exact":  "leave one of the two options out",
		"--local=2 --outer=1":           "is not RATE,MOMENTUM",
		"--local=2 --outer=0,0":         "rate",
		"--local=2 --outer=NaN,0":       "rate",
		"--local=2 --outer=0.7,1":       "momentum",
		"--local=2 --outer=0.7,-0.1":    "momentum",
		"--local=2 --outer=0.7,0.9,0.9": "momentum",
	} {
		status, out, errs := command(t, t.Context(), strings.Fields(args)...)
		if status != statusUsage || out != "" || !strings.Contains(errs, word) {
			t.Errorf("%s: status %d, errors %q; want %q in them", args, status, errs, word)
		}
	}
	// Some invalid numbers of steps are only detected once the data is known.
	status, _, errs := command(t, t.Context(), "--data", tinyMNIST(t), fmt.Sprint("--local=", 1<<62))
	if status != statusFailed || !strings.Contains(errs, "too many") {
		t.Errorf("status %d, errors %q", status, errs)
	}
}

func FuzzOuter(f *testing.F) {
	for _, text := range []string{"0.7,0.9", "1,0", "", ",", "1e-3,.5", "Inf,0", "0x1p-2,0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var u, again outer
		if u.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(u.String())); err != nil || again != u || !(u.rate > 0 && u.momentum >= 0 && u.momentum < 1) {
			t.Errorf("%q is %v, and that %v (%v)", text, u, again, err)
		}
	})
}
