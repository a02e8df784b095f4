package e2e

import (
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// endingsOfCrashes are those with peers that die while the job runs, and at its end.
func endingsOfCrashes() map[string]ending {
	const at = "step 5"
	kill := func(names ...string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) { s.lose(t, syscall.SIGKILL, names...) }
	}
	again := func(t *testing.T, s *scene, lost []string, next ...string) {
		s.lose(t, syscall.SIGKILL, lost...)
		for _, name := range next {
			s.await(t, name+" step")
		}
	}
	return map[string]ending{
		"kill of one":          {n: 3, at: at, do: kill("1"), results: 1, line: killedOne},
		"kill of half":         {n: 4, at: at, do: kill("1", "2"), results: 1, line: `the job finished, but before its end peers 1(, |-)2 were killed by signal 9 \(killed\)`},
		"kill of most":         {n: 4, at: at, do: kill("0", "1", "2"), results: 1, line: `the job finished, but before its end peers 0-2 were killed by signal 9 \(killed\)`},
		"kill of all":          {n: 3, at: at, do: kill("0", "1", "2"), status: 1, line: `the job did not finish; likely cause: peer [0-2]` + killed},
		"kill of the only one": {n: 1, at: at, do: kill("0"), status: 1, line: `the job did not finish; likely cause: peer 0` + killed},
		"kill of one, restarted": {n: 3, flags: []string{"--restart", "1"}, at: at, do: func(t *testing.T, s *scene) {
			again(t, s, []string{"1"}, "1/2")
		}, results: 1, line: killedOne},
		"kill of half, restarted": {n: 4, flags: []string{"--restart", "4"}, at: at, do: func(t *testing.T, s *scene) {
			again(t, s, []string{"1", "2"}, "1/2", "2/2")
		}, results: 1, line: `the job finished, but before its end peers 1(, |-)2 were killed by signal 9 \(killed\)`},
		"kill of all, restarted": {n: 3, flags: []string{"--restart", "4"}, at: at, do: func(t *testing.T, s *scene) {
			again(t, s, []string{"0", "1", "2"}, "0/2", "1/2", "2/2")
		}, results: 1, line: `the job finished, but before its end peers 0-2 were killed by signal 9 \(killed\)`},
		"kill of the only one, restarted": {n: 1, flags: []string{"--restart", "1"}, at: at, do: func(t *testing.T, s *scene) {
			again(t, s, []string{"0"}, "0/2")
		}, results: 1, line: `the job finished, but before its end peer 0` + killed},
		"kill of a restarted peer before Init": {n: 2, flags: []string{"--restart", "2"}, orders: map[string]string{"1/2 start": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			again(t, s, []string{"1"})
			s.await(t, "1/2 start")
			s.lose(t, syscall.SIGKILL, "1/2")
			s.await(t, "1/3 step")
		}, results: 1, line: `the job finished, but before its end peer 1 .*was killed by signal 9 \(killed\)`},
		"kill of the others as one is on its way": {n: 2, flags: []string{"--restart", "3"}, orders: map[string]string{"1/2 start": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			again(t, s, []string{"1"})
			s.await(t, "1/2 start")
			s.lose(t, syscall.SIGKILL, "0")
			s.release()
			s.await(t, "0/2 step", "1/2 step")
		}, results: 1, line: `the job finished, but before its end peers 0(, |-)1 were killed by signal 9 \(killed\)`},
		"a stopped member": {n: 3, at: at, do: func(t *testing.T, s *scene) { s.lose(t, syscall.SIGSTOP, "1") }, results: 1, line: killedOne},
		"too few peers for --min-peers": {n: 2, flags: []string{"--min-peers", "2", "--rejoin-timeout", "100ms"}, at: at, do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "1")
			s.gone(t, "0")
		}, status: 75, line: `(the job gave up|the job did not finish).*peer 1` + killed},
	}
}

// endingsAtEnd are those of jobs that have a result when peers fail.
func endingsAtEnd() map[string]ending {
	const at = "step 5"
	one := map[string]string{"1 closed": "exit 4"}
	all := map[string]string{"closed": "exit 4"}
	return map[string]ending{
		"kill of one with the result": {n: 3, orders: map[string]string{"closed": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.atTheEnd(t)
			s.lose(t, syscall.SIGKILL, "1")
		}, results: 1, line: `the job finished, though at its end peer 1` + killed},
		"SIGTERM to one with the result": {n: 3, orders: map[string]string{"closed": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.atTheEnd(t)
			s.terminate(t, "1")
		}, results: 1, line: `the job finished, though at its end peer 1 \(pid \d+\) was killed by signal 15 \(terminated\)`},
		"SIGTERM to elrun after the result": {n: 3, orders: map[string]string{"closed": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.atTheEnd(t)
			s.Signal(t, syscall.SIGTERM)
			s.gone(t, "0", "1", "2")
		}, status: 143, results: 1},
		"kill of all with the result": {n: 2, orders: map[string]string{"closed": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.atTheEnd(t)
			s.signal(t, syscall.SIGKILL, "0", "1")
			s.gone(t, "0", "1")
		}, status: 1, line: `the job fails: it had a result, but then peers 0(, |-)1 were killed by signal 9 \(killed\)`, results: 1},
		"a result that one cannot keep": {n: 3, orders: one, status: 1, line: `the job fails: it had a result, but then peer 1 \(pid \d+\) exited with status 4`, results: 1},
		"a result that nobody can keep": {n: 3, orders: all, status: 1, line: `the job fails: it had a result, but then peers 0-2 exited with status 4`, results: 1},
	}
}

// atTheEnd lets the job end, and waits until all members have closed their groups.
func (s *scene) atTheEnd(t *testing.T) {
	t.Helper()
	s.finish(t, "closed")
}

// finish lets the job end, and waits until each process of the first elrun that has not ended is at a point after the loop.
func (s *scene) finish(t *testing.T, point string) {
	t.Helper()
	s.mu.Lock()
	s.last = true
	var names []string
	for name, a := range s.actors {
		if process.Alive(a.pid) {
			names = append(names, name+" "+point)
		}
	}
	s.mu.Unlock()
	s.release()
	s.await(t, names...)
}

// endingsOfPrograms are those of programs that end in the middle, and of commands around programs.
func endingsOfPrograms() map[string]ending {
	const at = "step 5"
	shell := func(script string) []string { return []string{"sh", "-c", script} }
	return map[string]ending{
		"exit of one": {n: 3, orders: map[string]string{"1 step 5": "exit 3"}, results: 1, line: `the job finished, but before its end peer 1 \(pid \d+\) exited with status 3`},
		"exit of one, restarted": {n: 3, flags: []string{"--restart", "1"}, orders: map[string]string{"1 step 5": "exit 3"}, at: "step 4", do: func(t *testing.T, s *scene) {
			s.release()
			s.await(t, "1/2 step")
		}, results: 1, line: `the job finished, but before its end peer 1 \(pid \d+\) exited with status 3`},
		"exit of all":                    {n: 2, orders: map[string]string{"step 5": "exit 3"}, status: 1, line: `the job did not finish; likely cause: peers? [01].* exited with status 3`},
		"exit of one with 0":             {n: 3, orders: map[string]string{"1 step 5": "exit 0"}, results: 1, line: `(the job finished, but before its end peer 1 .*)?`},
		"exit of all with 0":             {n: 2, orders: map[string]string{"step 5": "exit 0"}, status: 1, line: `the job did not finish: its peers have ended at step \d+ of 20 without the end of their loops; .*`},
		"an error of one":                {n: 3, orders: map[string]string{"1 step 5": "fail"}, results: 1, line: `the job finished, but before its end peer 1 \(pid \d+\) exited with status 1`},
		"an error of all":                {n: 2, orders: map[string]string{"step 5": "fail"}, status: 1, line: `the job did not finish; likely cause: peers? [01].* exited with status 1`},
		"a program that does not close":  {n: 2, orders: map[string]string{"end": "leak"}, line: `(the job finished|the programs have ended)?`},
		"a loop over sessions":           {n: 3, role: "barrier", line: `(the job (has )?finished|the programs have ended)?`},
		"a shell":                        {n: 2, program: shell(`{}; exit $?`), results: 1},
		"a shell that fails at the end":  {n: 2, program: shell(`{}; exit 5`), status: 1, line: `the job fails: it had a result, but then peers 0(, |-)1 exited with status 5`, results: 1},
		"a shell that hides a kill":      {n: 3, program: shell(`{} || true`), at: at, do: func(t *testing.T, s *scene) { s.lose(t, syscall.SIGKILL, "1") }, results: 1, line: `(the job finished, but before its end peer 1 .*)?`},
		"shells that hide kills":         {n: 2, program: shell(`{} || true`), at: at, do: func(t *testing.T, s *scene) { s.lose(t, syscall.SIGKILL, "0", "1") }, status: 1, line: `the job did not finish: its peers have ended at step \d+ of 1000000 without the end of their loops; .*`},
		"a shell that is killed":         {n: 3, program: shell(`{}; exit $?`), at: at, do: func(t *testing.T, s *scene) { killShell(t, s, "1") }, results: 1, line: killedOne},
		"two programs in a shell":        {n: 2, program: shell(`{} && {}`), results: 1},
		"a crash of the first program":   {n: 2, program: shell(`{}; {}`), orders: map[string]string{"1 step 5": "exit 3"}, results: 1, line: `(the job finished, but before its end peer 1 .*)?`},
		"the first program fails in all": {n: 2, program: shell(`{}; {}`), orders: map[string]string{"0 step 5": "exit 3", "1 step 5": "exit 3"}, results: 1, line: `(the job finished, but before its end .*)?`},
	}
}

// killShell kills the process that elrun has started, and not the program that it has started in turn.
func killShell(t *testing.T, s *scene, name string) {
	t.Helper()
	for _, p := range s.job.PeersOf(t, s.Process) {
		if p.Index == 1 {
			process.Signal(t, p.PID, syscall.SIGKILL)
		}
	}
	s.gone(t, name)
}
