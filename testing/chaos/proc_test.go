package chaos

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// number reads a number that the system wrote; -1 for what is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// resident returns the memory of a process in KiB, 0 if it is gone.
func resident(pid int) int {
	text, _, _ := strings.Cut(process.StatusField(pid, "VmRSS"), " ")
	return max(0, number(text))
}

// segments returns the names in the folder of shared memory that have to do with elrun.
func segments(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("/dev/shm/*elrun*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}
