package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// endingsOfTwo are those of jobs with two elruns.
func endingsOfTwo() map[string]ending {
	const at = "step 5"
	join := func(n int, then func(*testing.T, *scene)) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) {
			s.release()
			s.join(t, n, "--rejoin-timeout", "5s")
			for i := range n {
				s.await(t, fmt.Sprintf("j%d step", i))
			}
			then(t, s)
		}
	}
	lost := `(the job did not finish; likely cause: |.*)peer 0` + killed + `.*`
	return map[string]ending{
		"two elruns": {n: 2, at: at, do: join(1, func(*testing.T, *scene) {}), results: 1, joined: &end{}},
		"SIGTERM to the second elrun": {n: 2, at: at, do: join(1, func(t *testing.T, s *scene) {
			s.second.Signal(t, syscall.SIGTERM)
			s.gone(t, "j0")
		}), results: 1, joined: &end{status: 143}},
		"SIGTERM to the first elrun": {n: 2, at: at, do: join(1, func(t *testing.T, s *scene) {
			s.Signal(t, syscall.SIGTERM)
			s.gone(t, "0", "1")
		}), status: 143, results: 1, joined: &end{}},
		"kill of all peers of the second elrun": {n: 3, at: at, do: join(1, func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "j0")
		}), results: 1, joined: &end{1, lost}},
		"kill of the second elrun": {n: 3, at: at, do: join(1, func(t *testing.T, s *scene) {
			s.second.Signal(t, syscall.SIGKILL)
			s.gone(t, "j0")
		}), results: 1, joined: &end{status: -1}},
		"kill of the first elrun": {n: 1, at: at, do: join(3, func(t *testing.T, s *scene) {
			s.Signal(t, syscall.SIGKILL)
			s.gone(t, "0")
		}), status: -1, results: 1, joined: &end{}},
		"SIGTERM to the peer of the second elrun": {n: 2, at: at, do: join(1, func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGTERM, "j0")
		}), results: 1, joined: &end{0, `(the job was stopped|this peer has left|these peers have left) .*`}},
		"kick of the peer of the second elrun": {n: 1, at: at, do: join(2, func(t *testing.T, s *scene) {
			s.kick(t, "j0", "j1")
		}), results: 1, joined: &end{1, `.*(kicked|put out).*`}},
		"kick of the peer of the first elrun": {n: 1, at: at, do: join(2, func(t *testing.T, s *scene) {
			s.kick(t, "0")
		}), status: 1, line: `.*(kicked|put out).*`, results: 1, joined: &end{}},
		"a newcomer with another setting": {n: 2, orders: map[string]string{"j0 start": "setting other"}, at: at, do: func(t *testing.T, s *scene) {
			s.release()
			s.join(t, 1)
			s.gone(t, "j0")
		}, results: 1, joined: &end{1, `the newcomers? (was|were) refused: .*`}},
	}
}

// endingsOfNames are those of a job whose name a second elrun takes.
func endingsOfNames() map[string]ending {
	return map[string]ending{
		"one name twice": {n: 2, at: "step 5", do: func(t *testing.T, s *scene) {
			other := s.job.Start(t, exec.Command(process.Elrun(), "run", "-n", "1", "--name", s.main, "--", process.Self(t)))
			if status := other.Wait(t); status != 2 {
				t.Errorf("the second elrun run --name ended with status %d", status)
			}
		}, results: 1},
		"one name twice at the start": {n: 1, at: "start", do: func(t *testing.T, s *scene) {
			other := exec.Command(process.Elrun(), "run", "-n", "1", "--name", s.main, "--", process.Self(t))
			other.Env = append(os.Environ(), ending{}.environment(s, "j")...)
			if status := s.job.Start(t, other).Wait(t); status != 2 {
				t.Errorf("the second elrun run --name ended with status %d", status)
			}
		}, results: 1},
	}
}

// endingsOfHalves are those in which half of the members die.
func endingsOfHalves() map[string]ending {
	return map[string]ending{
		"half dies, of the second elrun, 1 of 2": halfDies(1, 1, false),
		"half dies, of the first elrun, 1 of 2":  halfDies(1, 1, true),
		"half dies, of the second elrun, 2 of 4": halfDies(2, 2, false),
		"half dies, of the first elrun, 2 of 4":  halfDies(2, 2, true),
	}
}

// halfDies is an ending in which all peers of one of two elruns die, which are half of the members. That elrun knows it for certain, so
// the others go on.
func halfDies(n, joined int, first bool) ending {
	e := ending{n: n, at: "step 5", results: 1, joined: &end{}}
	gone := `.*peers? 0.*killed.*the job goes on|the job did not finish; likely cause: peer [01]` + killed
	who := "j"
	if first {
		who = ""
		e.status, e.line = 1, gone
	} else {
		e.joined = &end{1, gone}
	}
	e.do = func(t *testing.T, s *scene) {
		log := filepath.Join(t.TempDir(), "events")
		s.release()
		s.join(t, joined, "--rejoin-timeout", "10s", "--events", log)
		for i := range joined {
			s.await(t, fmt.Sprintf("j%d step", i))
		}
		expectVoters(t, log, n+joined)
		var names []string
		for i := range map[bool]int{true: n, false: joined}[first] {
			names = append(names, fmt.Sprint(who, i))
		}
		s.lose(t, syscall.SIGKILL, names...)
		others := map[bool]string{true: "j0", false: "0"}[first]
		s.advance(t, others)
	}
	return e
}

// advance waits until a process has taken a step more than now.
func (s *scene) advance(t *testing.T, name string) {
	t.Helper()
	var now string
	s.is(name, func(a actor) bool { now = a.at; return true })
	process.Until(t, "a further step of "+name, func() bool { return s.is(name, func(a actor) bool { return a.at != now && a.at != "end" }) })
}

// kick puts out peers by their IDs, and waits for their ends.
func (s *scene) kick(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		pid := s.pidOf(t, name)
		for _, m := range s.elrun.status(t).Members {
			if m.PID == pid {
				s.command(t, 0, "kick", m.ID)
			}
		}
		s.gone(t, name)
	}
}
