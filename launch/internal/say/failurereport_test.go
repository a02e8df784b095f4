package say

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/spec"
)

// The lines wait for the likely cause, which is printed first. Only the first line says that the
// other programs run on.
func TestFailureReport(t *testing.T) {
	var x FailureReport
	now := time.Unix(100, 0)
	x.Add(spec.Exit{Index: 0, PID: 10, Code: 1, At: now}, now)
	x.Add(spec.Exit{Index: 1, PID: 11, Code: -1, Signal: syscall.SIGKILL, At: now.Add(time.Millisecond)}, now.Add(time.Millisecond))
	if got := x.Due(now.Add(causePeriod-1), true); got != nil {
		t.Errorf("%q before the cause can be known", got)
	}
	want := []string{"peer 1 (pid 11) was killed by signal 9 (killed); the others run on", "peer 0 (pid 10) exited with status 1"}
	if got := x.Due(now.Add(causePeriod), true); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := x.Due(now.Add(time.Hour), true); got != nil {
		t.Errorf("%q a second time", got)
	}
	x.Add(spec.Exit{Index: 2, PID: 12, Code: 3}, now)
	if got, want := x.Take(true), []string{"peer 2 (pid 12) exited with status 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Equal failures share one line, and so do many failures.
func TestFailureReportOfMany(t *testing.T) {
	for _, test := range []struct {
		statuses []int
		want     []string
	}{
		{[]int{1, 3, 1, 1}, []string{"peers 0, 2-3 exited with status 1; the others run on", "peer 1 (pid 11) exited with status 3"}},
		{[]int{1, 2, 3, 4, 5, 1}, []string{"peers 0, 5 exited with status 1, peer 1 (pid 11) exited with status 2, 3 more failed"}},
	} {
		var x FailureReport
		for i, code := range test.statuses {
			x.Add(spec.Exit{Index: i, PID: 10 + i, Code: code, At: time.Unix(int64(i), 0)}, time.Unix(100, 0))
		}
		if got := x.Take(true); !slices.Equal(got, test.want) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	var far []spec.Exit
	for i := range 100 {
		far = append(far, spec.Exit{Index: 2 * i, PID: 10, Code: -1, Signal: syscall.SIGKILL})
	}
	if got, want := FormatExits(far), "100 peers, as peer 0 (pid 10), were killed by signal 9 (killed)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
