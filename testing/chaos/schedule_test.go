package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

const (
	scheduledSteps = 60
	// patience is so long that only a hang exceeds it, even on a loaded machine.
	patience = 90 * time.Second
)

// schedule is a job and what happens to it. All of it follows from a seed, but for the moments at which the processes notice it.
type schedule struct {
	peers, restarts int
	checkpoint      bool          // every 10 steps
	late            time.Duration // the longest time before a process calls Init
	acts            []act
}

// act is something that happens to a job.
type act struct {
	kind string
	at   int64         // after this step; beyond the last step: when there is a result
	wait time.Duration // after that
	who  int           // which process, modulo their number
	n    int           // peers to join, or the number of peers to scale to
	cont bool          // a stopped process goes on later
}

// makeSchedule returns the schedule of a seed.
func makeSchedule(seed uint64) schedule {
	rng := rand.New(rand.NewPCG(seed, 1))
	k := schedule{peers: 1 + rng.IntN(5), restarts: max(0, rng.IntN(8)-2), checkpoint: rng.IntN(3) == 0, late: time.Duration(rng.IntN(3)) * 150 * time.Millisecond}
	kinds := []string{"kill", "kill", "kill", "kill newest", "kill half", "kill all", "term", "term", "term all", "stop", "stop newest", "scale", "scale",
		"join", "join", "term joined", "kill joined", "kill peers of joined", "elrun stop", "term elrun", "kill elrun"}
	for range 1 + rng.IntN(5) {
		a := act{kind: kinds[rng.IntN(len(kinds))], who: rng.IntN(8), n: 1 + rng.IntN(k.peers+1), cont: rng.IntN(2) == 0,
			wait: time.Duration(rng.Int64N(int64(150 * time.Millisecond)))}
		switch last := len(k.acts) - 1; rng.IntN(6) {
		case 0: // before the first step, or right after the act before
			if last >= 0 {
				a.at = k.acts[last].at
			}
		case 1: // when there is a result
			a.at, a.wait = scheduledSteps+1, a.wait/8
		case 2, 3: // shortly before the end
			a.at, a.wait = scheduledSteps-rng.Int64N(20), a.wait/10
		default:
			a.at, a.wait = 1+rng.Int64N(scheduledSteps), a.wait/10
		}
		k.acts = append(k.acts, a)
	}
	slices.SortStableFunc(k.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	return k
}

// staged is a job under a schedule.
type staged struct {
	*job
	schedule
	second *elrun
	hit    map[*elrun]map[int]bool // the indices of peers that got a signal, by elrun
	kills  int
	asked  bool           // somebody was asked to leave
	sent   map[*elrun]int // the status that follows from a signal to an elrun
	// stopped is set when a process was stopped that goes on only if all others are stopped, too.
	stopped, hangs bool
}

// A job of real processes to which anything happens ends with its result and status 0, or with another status and one line that
// names the reason. Nobody waits for ever, and nothing is left. The flag -seed has the first of -runs seeds.
func TestSchedules(t *testing.T) {
	s := spec{Samples: 20 * globalBatch, Steps: scheduledSteps, Pace: stepPace(5*time.Millisecond, 3), Exact: true}
	runs := cmp.Or(option[int]("runs"), pick(15, 500))
	first := max(1, option[uint64]("seed"))
	want, ends := alone(t, s), map[string]int{}
	var failed []string
	for seed := first; seed < first+uint64(runs); seed++ {
		var k *staged
		ok := t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			k = &staged{schedule: makeSchedule(seed), hit: map[*elrun]map[int]bool{}, sent: map[*elrun]int{}}
			k.run(t, s)
			k.check(t, want)
		})
		ends[k.ended()]++
		if !ok {
			failed = append(failed, fmt.Sprintf("-seed=%d: %v", seed, k))
		}
	}
	t.Logf("ends: %v; %d schedules failed\n%s", ends, len(failed), strings.Join(failed, "\n"))
}

// run carries the schedule out, and waits for the end of all elruns.
func (k *staged) run(t *testing.T, s spec) {
	t.Helper()
	flags := []string{"--restart", strconv.Itoa(k.restarts), "--rejoin-timeout", "10s"}
	if k.checkpoint {
		s.Checkpoint = t.TempDir()
	}
	s.Late = k.late
	k.job = start(t, s, k.peers, flags...)
	for _, a := range k.acts {
		k.within(t, fmt.Sprintf("step %d for %s", a.at, a.kind), func() bool {
			return k.step() >= a.at || k.finished() || !k.elruns[0].Running()
		})
		k.pause(t, a.wait)
		k.do(t, a)
	}
	for i, e := range k.elruns {
		k.within(t, fmt.Sprintf("the end of elrun %d", i), func() bool { return !e.Running() })
	}
	if slices.Contains(slices.Collect(maps.Values(k.sent)), -1) { // the peers of a killed elrun end by themselves
		k.within(t, "the end of all peers", func() bool { return len(k.Peers(t)) == 0 && process.Sockets(t, k.Name) == 0 })
	}
}

// within waits for a condition, or fails.
func (s *staged) within(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !process.Holds(t.Context(), patience, func() bool { s.poll(t); s.wake(t); return condition() }) {
		s.hangs = true
		t.Fatalf("waited %v in vain for %s", patience, what)
	}
}

// wake lets the peers go on if all of them are stopped, because then nobody is there whom they hold up.
func (s *staged) wake(t *testing.T) {
	t.Helper()
	if !s.stopped {
		return
	}
	all := s.Peers(t)
	if len(all) > 0 && !slices.ContainsFunc(all, func(p process.Peer) bool { return process.State(p.PID) != "T" }) {
		s.signal(t, syscall.SIGCONT, all)
	}
}

// do carries an act out, if it is possible now.
func (s *staged) do(t *testing.T, a act) {
	t.Helper()
	all := s.elruns[0].peers(t)
	switch a.kind {
	case "kill":
		s.signal(t, syscall.SIGKILL, one(all, a.who))
	case "kill newest":
		s.signal(t, syscall.SIGKILL, one(all, len(all)-1))
	case "kill half":
		s.signal(t, syscall.SIGKILL, all[:len(all)/2])
	case "kill all":
		s.signal(t, syscall.SIGKILL, all)
	case "kill peers of joined":
		if s.second != nil {
			s.signal(t, syscall.SIGKILL, s.second.peers(t))
		}
	case "term":
		s.signal(t, syscall.SIGTERM, one(all, a.who))
	case "term all":
		s.signal(t, syscall.SIGTERM, all)
	case "stop", "stop newest":
		who := a.who
		if a.kind == "stop newest" {
			who = len(all) - 1
		}
		s.halt(t, one(all, who), a)
	case "scale": // refused when it comes too early or too late
		s.note("scale to %d", a.n)
		_, _, status := process.Command(t, "scale", "--elrun", strconv.Itoa(s.elruns[0].PID()), s.Name, strconv.Itoa(a.n))
		s.asked = s.asked || status == 0
	case "join":
		if s.second == nil {
			s.second = s.job.run(t, []string{"join", "--name", s.Name, "-n", strconv.Itoa(min(a.n, 3)), "--rejoin-timeout", "10s", "--join-timeout", "10s"})
		}
	case "elrun stop":
		s.note("elrun stop")
		_, _, _ = process.Command(t, "stop", s.Name) // fails when there is nobody to ask
		s.asked = true
	default:
		s.toElrun(t, a.kind)
	}
}

// toElrun sends a signal to an elrun.
func (s *staged) toElrun(t *testing.T, kind string) {
	t.Helper()
	e := s.elruns[0]
	if strings.HasSuffix(kind, "joined") {
		e = s.second
	}
	if e == nil || !e.Running() {
		return
	}
	sig, status := syscall.SIGTERM, 128+int(syscall.SIGTERM)
	if strings.HasPrefix(kind, "kill") {
		sig, status = syscall.SIGKILL, -1
	}
	s.job.kill(t, e.PID(), sig)
	s.sent[e] = status
}

// one returns one of all processes, if there is any.
func one(all []process.Peer, i int) []process.Peer {
	if len(all) == 0 {
		return nil
	}
	i = max(i, 0) % len(all)
	return all[i : i+1]
}

// signal sends a signal to processes.
func (s *staged) signal(t *testing.T, sig syscall.Signal, who []process.Peer) {
	t.Helper()
	for _, p := range who {
		for _, e := range s.elruns {
			if e.PID() == p.Parent {
				if s.hit[e] == nil {
					s.hit[e] = map[int]bool{}
				}
				s.hit[e][p.Index] = true
			}
		}
		s.job.kill(t, p.PID, sig)
		s.asked = s.asked || sig == syscall.SIGTERM
		if sig != syscall.SIGCONT && sig != syscall.SIGTERM {
			s.kills++
		}
	}
}

// halt stops a process, for a time or for ever.
func (s *staged) halt(t *testing.T, who []process.Peer, a act) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP, who)
	if s.stopped = s.stopped || !a.cont; a.cont {
		s.pause(t, 4*a.wait)
		s.signal(t, syscall.SIGCONT, who)
	}
}

// lastLines matches the lines that say how a job has ended.
func lastLines() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^elrun: (the job (finished|has finished|fails|failed|did not finish|was stopped|gave up)|peers report different results|` +
		`.*the job goes on$|the newcomers? (was|were) (refused|not let in)|(this|these) peers? (has|have) (left|been put out)|(the )?peers have ended|the programs have ended).*`)
}

// check checks how the job has ended.
func (s *staged) check(t *testing.T, want string) {
	t.Helper()
	for i, e := range s.elruns {
		for _, m := range regexp.MustCompile(`(?m)^done steps=\d+ .*\bsha256=(\w+)$`).FindAllStringSubmatch(e.Out.String(), -1) {
			if m[1] != want {
				t.Errorf("elrun %d: sha256 %s, undisturbed %s", i, m[1], want)
			}
		}
		s.checkEnd(t, i, e)
	}
	first := s.elruns[0]
	mayFail := s.asked || len(s.elruns) > 1 || len(s.sent) > 0
	if enough := s.kills <= s.restarts || len(s.hit[first]) < s.peers; !mayFail && enough && (first.Status() != 0 || !s.finished()) {
		t.Errorf("status %d and a result: %v, though the peers left, and restarts, suffice", first.Status(), s.finished())
	}
	s.checkGone(t)
}

// checkEnd checks the status and the last line of an elrun.
func (s *staged) checkEnd(t *testing.T, i int, e *elrun) {
	t.Helper()
	status, lines := e.Status(), lastLines().FindAllString(e.Err.String(), -1)
	if sent, ok := s.sent[e]; ok && status == sent {
		return
	}
	if len(lines) > 1 {
		t.Errorf("elrun %d has %d last lines: %q", i, len(lines), lines)
	}
	line := strings.Join(lines, "; ")
	switch {
	case status == 0 && s.finished():
	case status == 0 && s.asked && strings.Contains(line, "was stopped"):
	case status == 0:
		t.Errorf("elrun %d ended with 0 without a result: %q", i, line)
	case status == 75 && s.kills+len(s.sent) > 0 && len(s.elruns) > 1: // fewer than half of the members of one elrun may be left
	case status == 1 && i > 0 && regexp.MustCompile(`(?m)^elrun: (no such job|ask |the job .* has ended)`).MatchString(e.Err.String()): // it came too late
	case status != 1:
		t.Errorf("elrun %d ended with status %d: %q", i, status, line)
	case len(lines) == 0:
		t.Errorf("elrun %d ended with status 1 and no reason: %s", i, process.Tail(e.Err.String(), 500))
	default:
		s.checkCause(t, e, line)
	}
}

// checkCause checks that the peer that is named as the cause got a signal.
func (s *staged) checkCause(t *testing.T, e *elrun, line string) {
	t.Helper()
	m := regexp.MustCompile(`cause: peers? (\d+)`).FindStringSubmatch(line)
	if m == nil {
		return
	}
	if index, _ := strconv.Atoi(m[1]); !s.hit[e][index] {
		t.Errorf("peer %d is named as the cause, but nothing has happened to it: %s", index, line)
	}
}

// ended returns how the first elrun has ended, in a word.
func (s *staged) ended() string {
	switch {
	case s.job == nil || s.hangs:
		return "hangs"
	case s.finished():
		return fmt.Sprint("a result, status ", s.elruns[0].Status())
	default:
		return fmt.Sprint("no result, status ", s.elruns[0].Status())
	}
}

// String describes the schedule and its end.
func (s *staged) String() string {
	if s.job == nil {
		return "not started"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d peers, %d restarts, up to %v before Init, %s\n", s.peers, s.restarts, s.late, s.ended())
	begun := time.Time{}
	for _, n := range s.notes {
		if begun.IsZero() {
			begun = n.Time
		}
		fmt.Fprintf(&out, "  %5d ms %v\n", n.Time.Sub(begun).Milliseconds(), n.Body)
	}
	for i, e := range s.elruns {
		said := regexp.MustCompile(`(?m)^elrun: .*$`).FindAllString(e.Err.String(), -1)
		for _, line := range said[max(0, len(said)-4):] {
			fmt.Fprintf(&out, "  elrun %d: %.180s\n", i, line)
		}
	}
	return out.String()
}
