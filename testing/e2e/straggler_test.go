package e2e

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// The status names the peer for which the others have waited most: one that computes slowly. The long form tries each peer
// many times, and also stops it for two seconds; other load on the machine may mislead it a few times:
//
//	go test -count=1 -timeout=1h -v -run TestStragglers ./testing/e2e -long
func TestStragglers(t *testing.T) {
	const peers = 4
	if !long() {
		straggler(t, peers, 2, "--slow", "2:3")
		return
	}
	right, tries := 0, 0
	for run := range 30 {
		victim := run % peers
		for _, slow := range []string{fmt.Sprintf("%d:3", victim), ""} {
			tries++
			var args []string
			if slow != "" {
				args = []string{"--slow", slow}
			}
			if first := firstStraggler(t, peers, victim, args...); first == victim {
				right++
			} else {
				t.Logf("%v: peer %d is first, not %d", args, first, victim)
			}
		}
	}
	if t.Logf("%d of %d right", right, tries); right < tries*57/60 {
		t.Errorf("%d of %d right", right, tries)
	}
}

// straggler checks that the victim is the first straggler.
func straggler(t *testing.T, peers, victim int, args ...string) {
	t.Helper()
	if first := firstStraggler(t, peers, victim, args...); first != victim {
		t.Errorf("the first straggler is peer %d, want %d", first, victim)
	}
}

// firstStraggler trains, and returns the index of the peer that the status names first. Without further arguments it stops
// the victim for two seconds.
func firstStraggler(t *testing.T, peers, victim int, args ...string) int {
	t.Helper()
	program, data := mnist(t)
	e := &elrun{job: process.NewJob(t)}
	e.launch(t, append([]string{"-n", fmt.Sprint(peers), "--name", e.job.Name, "--listen", "local", "--", program, "--data", data,
		"--steps", "1000000", "--pace", "200us", "--balance", "equal", "--steal", "off"}, args...))
	steps := func(n int64) (s launch.Status) {
		process.Until(t, fmt.Sprint(n, " steps"), func() bool {
			text, _, status := process.Command(t, "status", "--json", e.job.Name)
			return status == 0 && json.Unmarshal([]byte(text), &s) == nil && s.Step >= n
		})
		return s
	}
	s := steps(20)
	if len(args) == 0 {
		for _, m := range s.Members {
			if m.Index == victim {
				process.Signal(t, m.PID, syscall.SIGSTOP)
				process.Pause(t, 2*time.Second)
				process.Signal(t, m.PID, syscall.SIGCONT)
			}
		}
	}
	s = steps(s.Step + 20)
	e.Signal(t, syscall.SIGINT)
	e.Wait(t)
	if len(s.Stragglers) == 0 {
		return -1
	}
	return s.Stragglers[0].Index
}
