package e2e

import (
	"slices"
	"testing"
)

// TestTrafficOfLocalSteps checks that a job with 50 local steps between two sums sends a fiftieth
// of the bytes, and is at most half a percentage point less accurate:
//
//	go test -count=1 -timeout=1h -v -run TestTrafficOfLocalSteps ./testing/e2e -long
//
// The short form trains a smaller model for a shorter time, and may be 1.5 points less accurate.
// Both jobs code gradients as fp16, because the log counts only the bytes of coded gradients.
func TestTrafficOfLocalSteps(t *testing.T) {
	program, data := mnist(t)
	flags := append(pick([]string{"--hidden", "64", "--passes", "2"}, []string{"--passes", "10"}),
		"--global-batch", "80", "--microbatch", "20", "--lr", "0.05")
	every := squeeze(t, program, data, "fp16", flags...)
	local := squeeze(t, program, data, "fp16", slices.Concat(flags, []string{"--local", "50"})...)
	every.checkDigests(t, pick(1500, 7500))
	local.checkDigests(t, pick(30, 150))
	ratio := float64(every.sent) / float64(local.sent)
	t.Logf("%.2f times fewer bytes, accuracy %.4f, without local steps %.4f", ratio, local.accuracy, every.accuracy)
	if ratio < 49.5 || ratio > 50.5 {
		t.Errorf("%d bytes instead of %d, %.2f times fewer, want 50 times", local.sent, every.sent, ratio)
	}
	if local.accuracy < every.accuracy-pick(0.015, 0.005) || every.accuracy < pick(0.94, 0.97) {
		t.Errorf("accuracy %.4f, without local steps %.4f", local.accuracy, every.accuracy)
	}
}
