package inpeer

import (
	"runtime"
	"strings"
	"testing"
)

// A host has the same ID throughout a job and a different ID in another job. It has no ID if its
// kernel ID is unknown.
func TestMachineID(t *testing.T) {
	if a, b := machineID("a"), machineID("b"); a != machineID("a") || (a == b) != (a == "") || runtime.GOOS == "linux" && a == "" {
		t.Errorf("%q in one job and %q in another", a, b)
	}
	if id := hashMachine("", "a"); id != "" {
		t.Errorf("%q of an unknown host", id)
	}
	if a, b := hashMachine("boot 1", "a"), hashMachine("boot 2", "a"); a == b || strings.Contains(a, "boot") || len(a) != 16 {
		t.Errorf("%q and %q", a, b)
	}
}
