package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// churn changes the membership of a job, one change at a time.
type churn struct {
	*job
	rng    *rand.Rand
	size   int // members while no change is under way
	others int // elrun processes that have joined so far
	kills  int
	leaves int
	joins  int
}

// newChurn starts with a job that has the given number of peers.
func newChurn(t *testing.T, j *job, size int) *churn {
	t.Helper()
	c := &churn{job: j, rng: chance(t), size: size}
	c.settle(t, size)
	return c
}

// round removes one peer and adds another.
func (c *churn) round(t *testing.T) {
	t.Helper()
	if c.rng.IntN(4) == 0 {
		c.leave(t)
	} else {
		c.kill(t)
	}
	c.enter(t)
}

// victim chooses a member at random, but never the last peer of the first elrun, which has to print
// the result.
func (c *churn) victim(t *testing.T) process.Peer {
	t.Helper()
	all := c.Peers(t)
	if own := c.elruns[0].peers(t); len(own) == 1 {
		all = slices.DeleteFunc(all, func(p process.Peer) bool { return p == own[0] })
	}
	return all[c.rng.IntN(len(all))]
}

// kill kills a member, and waits until the other members have made further steps.
func (c *churn) kill(t *testing.T) {
	t.Helper()
	c.job.kill(t, c.victim(t).PID, syscall.SIGKILL)
	c.kills++
	c.settle(t, c.size-1)
}

// leave asks a member to leave, and waits until the other members have made further steps and the
// process has ended.
func (c *churn) leave(t *testing.T) {
	t.Helper()
	p := c.victim(t)
	c.job.kill(t, p.PID, syscall.SIGTERM)
	c.leaves++
	c.settle(t, c.size-1)
	c.until(t, fmt.Sprintf("the end of process %d, which has left", p.PID), func() bool { return !process.Alive(p.PID) })
}

// enter lets a peer join: another peer of the first elrun, or the peer of a new elrun.
func (c *churn) enter(t *testing.T) {
	t.Helper()
	if own := len(c.elruns[0].peers(t)); own > 1 && c.rng.IntN(3) == 0 {
		c.join(t, 1)
		c.others++
	} else {
		c.elruns[0].scale(t, own+1)
	}
	c.joins++
	c.settle(t, c.size)
}
