package chaos

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// These constants bound the soak.
const (
	soakPeers = 4 // peers of the first elrun at the beginning and at the end
	mostPeers = 7 // peers in all
	elders    = 2 // peers of the first elrun that live from the beginning to the end
	// shortStop is how long a peer may be stopped without being put out.
	shortStop = 400 * time.Millisecond
	// longStop is long enough for a peer to be put out, and usually to be killed by its elrun.
	longStop = 3 * time.Second
	// lease is the longest time for which memory is kept for a peer that died while it joined.
	lease = 16 * time.Second
)

// soak is a job whose processes the test kills, stops and adds.
type soak struct {
	*job
	rng    *rand.Rand
	second *elrun // nil if no second elrun runs
	// members is the size of the last settled view, and doomed is how many of its members may have
	// ended since or may end soon. As long as doomed is less than half of members, a majority of
	// this view remains.
	doomed, members int
	unlogged        []steps        // steps whose contributions may be missing in the logs
	done            map[string]int // how often each action was done
	length          time.Duration
}

// short reports whether the soak is too short to wait for the end of all leases.
func (s *soak) short() bool { return s.length < time.Minute }

// For a long time peers are killed, stopped, asked to leave and added, and elrun processes join and
// are killed. The job runs all the time. At the end only the expected processes are left, and the
// oldest processes use no more memory and goroutines than after a quarter of the time. The weights
// are the same as in an undisturbed run.
func TestSoak(t *testing.T) {
	length := time.Duration(option[float64]("minutes") * float64(time.Minute))
	if length == 0 {
		length = pick(8*time.Second, time.Minute)
	}
	// The job has more steps than fit into the soak, so that the training does not end first.
	const step = 15 * time.Millisecond
	s := spec{Samples: 5000, Steps: int64((length + 2*lease) / step), Exact: true, Pace: stepPace(step, soakPeers)}
	want := alone(t, s)
	k := &soak{job: start(t, s, soakPeers), rng: chance(t), members: soakPeers, done: make(map[string]int), length: length}
	k.settle(t, soakPeers)
	begun := time.Now()
	for time.Since(begun) < length/4 {
		k.act(t)
	}
	k.gather(t)
	first := k.census(t)
	for time.Since(begun) < length {
		k.act(t)
	}
	k.gather(t)
	last := k.census(t)
	at := k.step()
	k.speedUp(t)
	if got := k.finish(t); got != want {
		t.Errorf("sha256 %s, undisturbed %s", got, want)
	}
	if err := checkLedger(k.spec, k.events(), k.unlogged...); err != nil {
		t.Error(err)
	}
	t.Logf("%v until step %d of %d, %d epochs; %v", length, at, s.Steps, k.elruns[0].ViewEvent.Epoch, k.done)
	slack := 4 << 10
	if k.short() {
		slack = 64 << 10
	}
	compare(t, first, last, slack)
}

// alone returns the SHA-256 of the weights of the same job with one peer.
func alone(t *testing.T, s spec) string {
	t.Helper()
	j := start(t, s, 1)
	j.speedUp(t)
	return j.finish(t)
}

// act does one action. Usually it then waits until the job has recovered.
func (s *soak) act(t *testing.T) {
	t.Helper()
	if s.finished() {
		t.Fatal("the training has ended before the soak")
	}
	name, f := s.choose(t)
	if f == nil {
		s.rest(t)
		return
	}
	f(t)
	s.done[name]++
	if s.rng.IntN(4) > 0 {
		s.rest(t)
		return
	}
	s.pause(t, time.Duration(s.rng.Int64N(int64(200*time.Millisecond))))
}

// choose draws the next action. f is nil if the action is not possible now.
func (s *soak) choose(t *testing.T) (name string, f func(*testing.T)) {
	t.Helper()
	if s.second != nil && !s.second.Running() && len(s.Peers(t)) == len(s.elruns[0].peers(t)) {
		s.second = nil
	}
	young := s.young(t)
	n := len(s.Peers(t))
	mayDie := len(young) > 0 && 2*(s.doomed+1) < s.members
	switch s.rng.IntN(8) {
	case 0, 1:
		if mayDie {
			return "killed", func(t *testing.T) { s.signal(t, young, syscall.SIGKILL) }
		}
	case 2:
		if mayDie {
			return "left", func(t *testing.T) { s.signal(t, young, syscall.SIGTERM) }
		}
	case 3:
		if mayDie {
			return "stopped", func(t *testing.T) { s.stop(t, young, longStop) }
		}
	case 4:
		return "paused", func(t *testing.T) { s.stop(t, s.Peers(t), time.Duration(s.rng.Int64N(int64(shortStop)))) }
	case 5, 6:
		if n < mostPeers {
			return "started", func(t *testing.T) { s.elruns[0].scale(t, len(s.elruns[0].peers(t))+1) }
		}
	case 7:
		if s.second == nil && n < mostPeers-1 {
			return "elrun joined", func(t *testing.T) { s.second = s.join(t, 1+s.rng.IntN(2)) }
		}
		if s.second != nil && s.second.Running() && 2*(s.doomed+len(s.second.peers(t))) < s.members {
			return "elrun killed", s.killSecond
		}
	}
	return "", nil
}

// young returns the peers that may be killed, stopped for long or asked to leave.
func (s *soak) young(t *testing.T) []process.Peer {
	t.Helper()
	return slices.DeleteFunc(s.Peers(t), func(p process.Peer) bool {
		return p.Parent == s.elruns[0].PID() && p.Index < elders
	})
}

// signal sends sig to one of the given peers, chosen at random. The peer then dies or leaves.
func (s *soak) signal(t *testing.T, all []process.Peer, sig syscall.Signal) {
	t.Helper()
	s.job.kill(t, all[s.rng.IntN(len(all))].PID, sig)
	s.doomed++
}

// stop stops one of the given peers for a time. If the other members put the peer out meanwhile and
// its elrun does not kill it, it joins again with a new identity.
func (s *soak) stop(t *testing.T, all []process.Peer, d time.Duration) {
	t.Helper()
	p := all[s.rng.IntN(len(all))]
	s.job.kill(t, p.PID, syscall.SIGSTOP)
	s.pause(t, d)
	s.job.kill(t, p.PID, syscall.SIGCONT)
	s.doomed++
}

// killSecond kills the second elrun. The peers of the second elrun must then end by themselves.
func (s *soak) killSecond(t *testing.T) {
	t.Helper()
	orphans := s.second.peers(t)
	from := s.step() - 2 // the killed elrun has not written its last events
	s.doomed += len(orphans)
	s.job.kill(t, s.second.PID(), syscall.SIGKILL)
	begun := time.Now()
	s.until(t, fmt.Sprintf("the end of %v, whose elrun is dead", orphans), func() bool {
		return !slices.ContainsFunc(orphans, func(p process.Peer) bool { return process.Alive(p.PID) })
	})
	s.unlogged = append(s.unlogged, steps{from, s.step() + 10})
	// The orphans have 2 s, but the machine may be loaded.
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("peers outlive their elrun by %v", took)
	}
}

// rest waits until all running peers are members and make steps together.
func (s *soak) rest(t *testing.T) {
	t.Helper()
	s.until(t, "a view of all peers that run", func() bool {
		v, _ := s.view()
		s.members = len(v.Members)
		return s.members == len(s.Peers(t))
	})
	s.doomed = 0
	at := s.step()
	s.until(t, "steps", func() bool { return s.step() > at+5 })
}

// gather restores the number of peers with which the job began.
func (s *soak) gather(t *testing.T) {
	t.Helper()
	s.rest(t)
	if s.second != nil && s.second.Running() {
		s.job.kill(t, s.second.PID(), syscall.SIGTERM)
		s.second.status(t)
	}
	s.elruns[0].scale(t, soakPeers)
	s.until(t, "the peers of the first elrun", func() bool { return len(s.Peers(t)) == soakPeers })
	s.settle(t, soakPeers)
	if !s.short() {
		s.pause(t, lease)
	}
	s.pause(t, time.Second) // for the end of earlier sessions
}

// holdings are the resources of a process.
type holdings struct{ resident, goroutines, heap int }

// census asks the oldest peers for their resources. The figures of elrun come last, without
// goroutines and heap, which elrun does not report.
func (s *soak) census(t *testing.T) []holdings {
	t.Helper()
	var all []holdings
	for index := range elders {
		p := s.elruns[0].peer(t, index)
		line := regexp.MustCompile(fmt.Sprintf(`census pid=%d goroutines=(\d+) heap=(\d+)`, p.PID))
		answers := func() [][]string { return line.FindAllStringSubmatch(s.elruns[0].Out.String(), -1) }
		before := len(answers())
		s.job.kill(t, p.PID, syscall.SIGUSR1)
		s.until(t, "a census", func() bool { return len(answers()) > before })
		answer := answers()[before]
		all = append(all, holdings{resident(p.PID), number(answer[1]), number(answer[2]) >> 10})
	}
	return append(all, holdings{resident: resident(s.elruns[0].PID())})
}

// compare checks that processes use no more resident memory and goroutines at the end than after a
// quarter of the time. Memory may be larger by a fifth plus slack KiB, and there may be ten more
// goroutines.
func compare(t *testing.T, first, last []holdings, slack int) {
	t.Helper()
	var lines strings.Builder
	for i := range first {
		a, b := first[i], last[i]
		fmt.Fprintf(&lines, "%d: resident %d KiB, then %d; goroutines %d, then %d; heap %d KiB, then %d\n",
			i, a.resident, b.resident, a.goroutines, b.goroutines, a.heap, b.heap)
		if b.resident > a.resident*6/5+slack {
			t.Errorf("resident memory of process %d grew from %d to %d KiB", i, a.resident, b.resident)
		}
		if b.goroutines > a.goroutines+10 {
			t.Errorf("goroutines of process %d grew from %d to %d", i, a.goroutines, b.goroutines)
		}
	}
	t.Logf("the oldest peers and elrun, after a quarter of the time and at the end:\n%s", &lines)
}
