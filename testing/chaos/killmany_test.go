package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// manyPeers is the number of peers in TestKillOfMany.
const manyPeers = 64

// One of 64 peers is killed at a random instant; later 16 of the others are killed at the same
// time. Only the killed peers are lost. The job finishes, every sample counts once, and the weights
// are the same as with a single process.
func TestKillOfMany(t *testing.T) {
	rng := chance(t)
	s := spec{Batch: 2 * manyPeers * microbatch, Steps: 50, Exact: true}
	s.Samples, s.Pace = 10*s.Batch, 50*time.Millisecond/2
	var alone string
	same(t, "one process", &alone, func(t *testing.T) string {
		j := start(t, s, 1)
		j.speedUp(t)
		return j.finish(t)
	})
	counts := []int{1, 16}
	all := make([][]latency, len(counts))
	for run := range cmp.Or(option[int]("runs"), pick(1, 10)) {
		same(t, fmt.Sprint(run), &alone, func(t *testing.T) string {
			j := start(t, s, manyPeers, transportFlags()...)
			j.settle(t, manyPeers)
			indices := rng.Perm(manyPeers)
			var victims []string
			for k, n := range counts {
				ids, killed := j.killAll(t, indices[:n])
				indices, victims = indices[n:], append(victims, ids...)
				j.settle(t, len(indices))
				if l, ok := measure(j.events(), ids, killed); ok {
					all[k] = append(all[k], l)
				}
			}
			j.speedUp(t)
			sum := j.finish(t)
			j.lostOnly(t, victims)
			if err := checkLedger(j.spec, j.events()); err != nil {
				t.Error(err)
			}
			return sum
		})
	}
	for k, n := range counts {
		report(t, n, manyPeers, all[k])
	}
}

// killAll kills peers of the first elrun at the same time. It returns their IDs and the time.
func (j *job) killAll(t *testing.T, indices []int) (ids []string, at time.Time) {
	t.Helper()
	var pids []int
	for _, p := range j.elruns[0].peers(t) {
		if slices.Contains(indices, p.Index) {
			ids, pids = append(ids, j.identity(p.Index)), append(pids, p.PID)
		}
	}
	if len(pids) != len(indices) {
		t.Fatalf("only %d of the peers %v run", len(pids), indices)
	}
	at = time.Now()
	for _, pid := range pids {
		j.kill(t, pid, syscall.SIGKILL)
	}
	return ids, at
}

// lostOnly fails the test if the log reports the loss of a member that is not in ids, or that a
// live member was put out.
func (j *job) lostOnly(t *testing.T, ids []string) {
	t.Helper()
	for _, e := range j.events() {
		switch body := e.Body.(type) {
		case event.Lost:
			if !slices.Contains(ids, body.Who) {
				t.Errorf("%s is lost, which was not killed: %+v", body.Who, e)
			}
		case event.Fenced:
			t.Errorf("a peer that lives was put out: %+v", e)
		}
	}
}
