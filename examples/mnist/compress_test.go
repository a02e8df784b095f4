package main

import (
	"strings"
	"testing"
)

// A single peer sends nothing, so compression has no effect. A peer can resume from a checkpoint of
// a training with another coding.
func TestCompressAlone(t *testing.T) {
	data, dir := tinyMNIST(t), t.TempDir()
	args := []string{"--data", data, "--steps", "14", "--hidden", "10", "--global-batch", "40"}
	plain := trained(t, args...)
	rounded := trained(t, append(args, "--compress", "int8", "--checkpoint", dir, "--checkpoint-every", "5")...)
	if rounded.sha256 != plain.sha256 {
		t.Errorf("%s, compressed %s", plain.sha256, rounded.sha256)
	}
	_, step := newestIn(t, dir)
	checkResumed(t, trained(t, append(args, "--compress", "topk", "--resume", dir)...), plain, step)
}

func TestCompressArguments(t *testing.T) {
	for args, word := range map[string]string{
		"--compress zip":            "want none, fp16",
		"--compress topk:3":         "fraction",
		"--compress=bf16 --exact":   "--exact",
		"--compress=topk:1 --exact": "fraction",
	} {
		status, _, errs := command(t, t.Context(), strings.Fields(args)...)
		if status != statusUsage || !strings.Contains(errs, word) || !strings.Contains(errs, "--compress") {
			t.Errorf("%s: status %d, errors %q; want %q in them", args, status, errs, word)
		}
	}
}

func TestAuditArguments(t *testing.T) {
	for args, word := range map[string]string{
		"--audit 0.01":      "add --exact",
		"--audit 2 --exact": "0 to 1",
	} {
		status, _, errs := command(t, t.Context(), strings.Fields(args)...)
		if status != statusUsage || !strings.Contains(errs, word) || !strings.Contains(errs, "--audit") {
			t.Errorf("%s: status %d, errors %q; want %q in them", args, status, errs, word)
		}
	}
}
