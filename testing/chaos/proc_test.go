package chaos

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// number parses a number that the kernel wrote. It returns -1 if text is no number.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// resident returns the resident memory of a process in KiB, or 0 if the process has ended.
func resident(pid int) int {
	text, _, _ := strings.Cut(process.StatusField(pid, "VmRSS"), " ")
	return max(0, number(text))
}

// segments returns the names in the folder of shared memory that belong to elrun.
func segments(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("/dev/shm/*elrun*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}
