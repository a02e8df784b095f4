package chaos

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// One or all peers of a job of five are killed at random instants and restarted. The job ends with
// its result, or elrun prints the reason for the failure. No peer waits for ever for peers that
// have ended.
func TestKillWithRestart(t *testing.T) {
	rng := chance(t)
	const peers = 5
	runs := cmp.Or(option[int]("runs"), pick(6, 200))
	ends := map[string]int{}
	for run := range runs {
		all := run%4 == 3
		s := spec{Samples: 20 * globalBatch, Steps: 60, Pace: stepPace(5*time.Millisecond, peers), Exact: true}
		budget := rng.IntN(8)
		t.Run(fmt.Sprintf("%d/all=%v/restarts=%d", run, all, budget), func(t *testing.T) {
			j := start(t, s, peers, "--restart", fmt.Sprint(budget))
			at := rng.Int64N(s.Steps)
			j.until(t, "the step", func() bool { return j.step() >= at && j.step() > 0 || j.finished() })
			running := j.elruns[0].peers(t)
			first := rng.IntN(max(len(running), 1))
			for k, p := range running {
				if k == first || all {
					j.kill(t, p.PID, syscall.SIGKILL)
				}
			}
			if all && rng.IntN(2) == 0 { // kills every second peer again, which may wait for others after its restart
				j.pause(t, time.Duration(rng.Int64N(int64(100*time.Millisecond))))
				for k, p := range j.elruns[0].peers(t) {
					if k%2 == 0 {
						j.kill(t, p.PID, syscall.SIGKILL)
					}
				}
			}
			status := j.elruns[0].Wait(t)
			finished, told := j.finished(), tellsFailure(j.elruns[0].Err.String())
			if status == 0 && !finished || (status != 0) != told || !all && status != 0 {
				t.Errorf("status %d, finished %v, a reason was printed %v", status, finished, told)
			}
			ends[map[bool]string{true: "result", false: "reason"}[status == 0]]++
		})
	}
	t.Logf("ends of %d jobs: %v", runs, ends)
}

// tellsFailure reports whether text, the output of a launcher, says that there is no result, or
// that all peers with the result were killed before they ended.
func tellsFailure(text string) bool {
	return strings.Contains(text, "the job did not finish") || strings.Contains(text, "the job fails: it had a result")
}
