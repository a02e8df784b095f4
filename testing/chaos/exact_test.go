package chaos

import (
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// In exact mode the weights do not depend on the number of peers, on peers that join, leave or die, or on where the training was
// interrupted.
func TestExactHasOneResult(t *testing.T) {
	const peers = 4
	rounds := pick(3, 20)
	s := spec{Samples: 3000, Steps: int64(pick(400, 3000)), Exact: true, Pace: stepPace(10*time.Millisecond, peers)}
	var want string
	for n := 1; n <= 4; n++ {
		same(t, fmt.Sprintf("%d peers", n), &want, func(t *testing.T) string {
			j := start(t, s, n)
			j.speedUp(t)
			return j.finish(t)
		})
	}
	same(t, fmt.Sprintf("%d kills and joins", rounds), &want, func(t *testing.T) string {
		c := newChurn(t, start(t, s, peers), peers)
		for range rounds {
			c.kill(t)
			c.enter(t)
		}
		t.Logf("%d kills, %d joins, %d of them by other elruns, until step %d", c.kills, c.joins, c.others, c.step())
		return c.end(t)
	})
	same(t, fmt.Sprintf("%d kills and restarts", rounds/3), &want, func(t *testing.T) string {
		c := newChurn(t, start(t, s, peers, "--restart", strconv.Itoa(rounds)), peers)
		for range rounds / 3 {
			c.job.kill(t, c.victim(t).PID, syscall.SIGKILL)
			_, epoch := c.view()
			c.until(t, "the loss and the return of a peer", func() bool {
				v, now := c.view()
				return now > epoch+1 && len(v.Members) == peers
			})
			c.settle(t, peers)
		}
		return c.end(t)
	})
	same(t, "stopped at 4 peers, resumed at 3", &want, func(t *testing.T) string {
		saved := s
		saved.Checkpoint = filepath.Join(t.TempDir(), "checkpoints")
		j := start(t, saved, peers)
		j.until(t, "some checkpoints", func() bool { return j.step() >= 55 })
		j.kill(t, j.elruns[0].PID(), syscall.SIGTERM)
		if status := j.elruns[0].status(t); status != 128+int(syscall.SIGTERM) {
			t.Errorf("status %d", status)
		}
		j.checkGone(t)
		s := s
		s.Resume = saved.Checkpoint
		resumed := start(t, s, 3)
		resumed.speedUp(t)
		sum := resumed.finish(t)
		if n := len(resumed.events()); n == 0 || resumed.firstStep() <= 10 {
			t.Errorf("%d events, the first step is %d: it has begun anew", n, resumed.firstStep())
		}
		return sum
	})
}

// same runs a job and compares its result with the result of the first job.
func same(t *testing.T, name string, want *string, run func(t *testing.T) string) {
	t.Run(name, func(t *testing.T) {
		got := run(t)
		if *want == "" {
			*want = got
		}
		if got != *want {
			t.Errorf("sha256 %s, want %s", got, *want)
		}
	})
}

// end lets the job finish, and checks its ledger.
func (c *churn) end(t *testing.T) string {
	t.Helper()
	c.speedUp(t)
	sum := c.finish(t)
	if err := checkLedger(c.spec, c.events()); err != nil {
		t.Error(err)
	}
	return sum
}
