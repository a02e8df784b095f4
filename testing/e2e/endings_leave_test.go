package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// endingsByRequest are those of jobs and peers that are asked to end.
func endingsByRequest() map[string]ending {
	const at = "step 5"
	term := func(names ...string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) { s.lose(t, syscall.SIGTERM, names...) }
	}
	signal := func(sig syscall.Signal) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) {
			s.Signal(t, sig)
			s.release()
			s.gone(t, "0", "1", "2")
		}
	}
	return map[string]ending{
		"SIGTERM to peer 0":                       {n: 3, at: at, do: term("0"), results: 1},
		"SIGTERM to peer 1":                       {n: 3, at: at, do: term("1"), results: 1},
		"SIGTERM to peer 2":                       {n: 3, at: at, do: term("2"), results: 1},
		"SIGTERM to a peer that may be restarted": {n: 3, flags: []string{"--restart", "2"}, at: at, do: term("1"), results: 1},
		"SIGTERM to each but one in turn": {n: 3, at: at, do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGTERM, "0")
			s.lose(t, syscall.SIGTERM, "2")
		}, results: 1},
		"SIGTERM to all":          {n: 3, at: at, do: term("0", "1", "2"), line: stopped},
		"SIGTERM to the only one": {n: 1, at: at, do: term("0"), line: stopped},
		"SIGTERM to elrun":        {n: 3, at: at, do: signal(syscall.SIGTERM), status: 143},
		"SIGINT to elrun":         {n: 3, at: at, do: signal(syscall.SIGINT), status: 130},
		"SIGTERM to elrun, peers that do not leave": {n: 2, flags: []string{"--grace", "10ms"}, at: at, do: func(t *testing.T, s *scene) {
			s.Signal(t, syscall.SIGTERM)
			s.gone(t, "0", "1")
		}, status: 143},
	}
}

// endingsOfStops are those by elrun stop.
func endingsOfStops() map[string]ending {
	const at = "step 5"
	stop := func(t *testing.T, s *scene) {
		s.release()
		s.command(t, 0, "stop")
	}
	return map[string]ending{
		"elrun stop": {n: 3, at: at, do: stop, line: stopped},
		"elrun stop after a kill": {n: 3, at: at, do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "1")
			stop(t, s)
		}, line: stopped},
		"elrun stop with a restarted peer before Init": {n: 2, flags: []string{"--restart", "2"}, orders: map[string]string{"1/2 start": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "1")
			s.await(t, "1/2 start")
			s.command(t, 0, "stop")
			s.gone(t, "0", "1/2")
		}, line: stopped},
		"elrun stop before Init": {n: 3, at: "start", do: func(t *testing.T, s *scene) {
			s.command(t, 0, "stop")
			s.gone(t, "0", "1", "2")
		}, line: unstarted},
		"elrun stop when all have the result": {n: 3, orders: map[string]string{"end": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.finish(t, "end")
			stop := s.job.Start(t, exec.Command(process.Elrun(), "stop", s.main))
			s.release()
			stop.Wait(t) // with any status: the job may end before it has asked
		}, results: 1},
		"elrun stop before the first view": {n: 3, at: "start", do: func(t *testing.T, s *scene) {
			s.release("0")
			process.Until(t, "a control socket", func() bool { return process.Sockets(t, s.main) > 0 })
			s.command(t, 0, "stop")
			s.gone(t, "0", "1", "2")
		}, line: unstarted},
	}
}

// endingsOfSizes are those of jobs whose number of peers a user changes.
func endingsOfSizes() map[string]ending {
	const at = "step 5"
	return map[string]ending{
		"scale down": {n: 3, at: at, do: func(t *testing.T, s *scene) { s.release(); s.command(t, 0, "scale", "1"); s.gone(t, "1", "2") }, results: 1},
		"scale up":   {n: 2, at: at, do: func(t *testing.T, s *scene) { s.release(); s.command(t, 0, "scale", "3"); s.await(t, "2 step") }, results: 1},
		"scale before the first view": {n: 3, at: "start", do: func(t *testing.T, s *scene) {
			s.release("0")
			process.Until(t, "a control socket", func() bool { return process.Sockets(t, s.main) > 0 })
			s.command(t, 1, "scale", "2")
		}, results: 1},
		"kick of one": {n: 3, at: at, do: func(t *testing.T, s *scene) { s.release(); s.command(t, 0, "kick", "1"); s.gone(t, "1") }, results: 1},
		"kick of one that may be restarted": {n: 3, flags: []string{"--restart", "2"}, at: at, do: func(t *testing.T, s *scene) {
			s.release()
			s.command(t, 0, "kick", "1")
			s.gone(t, "1")
		}, results: 1},
	}
}

// endingsAfterLeaves are those of jobs in which peers die after others have left, whose programs end with status 1 or 0.
func endingsAfterLeaves() map[string]ending {
	all := map[string]ending{}
	for how, end := range map[string]string{"": "go", ", with status 0": "polite"} {
		all["SIGTERM to the last member as a peer is on its way"+how] = ending{n: 2, flags: []string{"--restart", "3"},
			orders: map[string]string{"1/2 start": "hold", "0 end": end}, at: "step 5", do: func(t *testing.T, s *scene) {
				s.lose(t, syscall.SIGKILL, "1")
				s.await(t, "1/2 start")
				s.signal(t, syscall.SIGTERM, "0")
				s.gone(t, "0")
				s.release()
				s.await(t, "1/2 step")
			}, results: 1, line: killedOne}
		all["SIGTERM to one, then kill of the others, restarted"+how] = ending{n: 3, flags: []string{"--restart", "9"},
			orders: map[string]string{"2 end": end}, at: "step 5", do: func(t *testing.T, s *scene) {
				s.lose(t, syscall.SIGTERM, "2")
				s.lose(t, syscall.SIGKILL, "0", "1")
				s.await(t, "0/2 step", "1/2 step")
			}, results: 1, line: `the job finished, but before its end peers 0(, |-)1 were killed by signal 9 \(killed\)`}
		all["SIGTERM to two, then kill of the last one"+how] = ending{n: 3, orders: map[string]string{"0 end": end, "2 end": end},
			at: "step 5", do: func(t *testing.T, s *scene) {
				s.lose(t, syscall.SIGTERM, "0", "2")
				s.lose(t, syscall.SIGKILL, "1")
			}, status: 1, line: `the job did not finish; likely cause: peer 1` + killed}
		all["SIGTERM to each in turn"+how] = ending{n: 3, flags: []string{"--restart", "2"}, orders: map[string]string{"end": end},
			at: "step 5", do: func(t *testing.T, s *scene) {
				s.lose(t, syscall.SIGTERM, "0")
				s.lose(t, syscall.SIGTERM, "2")
				s.lose(t, syscall.SIGTERM, "1")
			}, line: stopped}
	}
	return all
}

// endingsOfNewcomers are those of peers that come late, or too late.
func endingsOfNewcomers() map[string]ending {
	const at = "step 5"
	return map[string]ending{
		"a restarted peer after the last member": {n: 2, flags: []string{"--restart", "3"}, orders: map[string]string{"1/2 start": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "1")
			s.await(t, "1/2 start")
			s.mu.Lock()
			s.last = true
			s.mu.Unlock()
			s.release("0")
			s.gone(t, "0")
		}, results: 1, line: killedOne},
		"a peer of elrun scale after the last member": {n: 2, orders: map[string]string{"2 start": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.command(t, 0, "scale", "3")
			s.await(t, "2 start")
			s.mu.Lock()
			s.last = true
			s.mu.Unlock()
			s.release("0", "1")
			s.gone(t, "0", "1")
		}, results: 1},
		"a newcomer that dies": {n: 2, orders: map[string]string{"2 joined": "exit 3"}, at: at, do: func(t *testing.T, s *scene) {
			s.release()
			s.command(t, 0, "scale", "3")
			// Before that the launcher may tell the newcomer that the job has finished, whose status then counts for nothing.
			process.Until(t, "a line about its end", func() bool { return strings.Contains(s.Err.String(), "exited with status 3") })
		}, results: 1, line: `the job finished, but before its end peer 2 \(pid \d+\) exited with status 3`},
		"a stopped newcomer": {n: 2, orders: map[string]string{"2 start": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.release()
			s.command(t, 0, "scale", "3")
			s.await(t, "2 start")
			s.lose(t, syscall.SIGSTOP, "2")
		}, results: 1, line: `the job finished, but before its end peer 2` + killed},
		"elrun stop with a stopped newcomer": {n: 2, orders: map[string]string{"2 start": "hold"}, at: at, do: func(t *testing.T, s *scene) {
			s.release("0", "1")
			s.command(t, 0, "scale", "3")
			s.await(t, "2 start")
			s.signal(t, syscall.SIGSTOP, "2")
			s.command(t, 0, "stop")
			s.gone(t, "0", "1", "2")
		}, line: stopped},
	}
}
