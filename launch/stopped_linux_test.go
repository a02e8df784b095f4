package launch

import (
	"os"
	"testing"
)

func TestParseStopped(t *testing.T) {
	for stat, want := range map[string]bool{
		"12 (train) T 1 12": true, "12 (a) T (b)) T 1": true,
		"12 (train) S 1": false, "12 (train) t 1": false, "12 (x) T y) R 1": false, "": false, "12 T": false, "12 (T": false,
	} {
		if got := parseStopped([]byte(stat)); got != want {
			t.Errorf("%q: got %v", stat, got)
		}
	}
	if stopped(os.Getpid()) || stopped(0) {
		t.Error("this process is not stopped, and there is no process 0")
	}
}
