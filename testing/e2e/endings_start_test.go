package e2e

import (
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// What endings say in common.
const (
	early     = `the job did not finish; likely cause: peer 1 \(pid \d+\) `
	killedOne = `the job finished, but before its end peer 1 \(pid \d+\) was killed by signal 9 \(killed\)`
	killed    = ` \(pid \d+\) was killed by signal 9 \(killed\)`
	stopped   = `the job was stopped at step \d+ of 1000000: it has no result`
	unstarted = `the job was stopped.*: it has no result`
	mistaken  = `the job fails by a mistake of its program: `
)

// endingsAtStart are those before the first view.
func endingsAtStart() map[string]ending {
	one := func(orders string) map[string]string { return map[string]string{"1 start": orders} }
	wrong := []string{"sh", "-c", `[ $ELRUN_INDEX != 1 ] || exec /no/such/program; exec {}`}
	return map[string]ending{
		"success":                           {n: 3, results: 1},
		"success of one":                    {n: 1, results: 1},
		"a program without a group":         {n: 2, program: []string{"true"}, line: `(the programs have ended)?`},
		"a program that fails":              {n: 1, program: []string{"sh", "-c", "exit 3"}, status: 1, line: `the job did not finish; likely cause: peer 0 \(pid \d+\) exited with status 3`},
		"programs that fail":                {n: 3, program: []string{"sh", "-c", "exit 3"}, status: 1, line: `the job did not finish; likely cause: peers? [0-2].* exited with status 3`},
		"a path that does not exist":        {n: 2, program: []string{"/no/such/program"}, status: 1, line: `.*/no/such/program.*`},
		"exit before Init":                  {n: 3, orders: one("exit 3"), status: 1, line: early + `exited with status 3`},
		"panic before Init":                 {n: 3, orders: one("panic"), status: 1, line: early + `exited with status 2`},
		"exit with 0 before Init":           {n: 3, orders: one("exit 0"), status: 1, line: early + `exited with status 0.*`},
		"wrong path of one":                 {n: 3, program: wrong, status: 1, line: early + `exited with status 127`},
		"wrong path of one, restarted":      {n: 3, flags: []string{"--restart", "1"}, program: wrong, status: 1, line: early + `exited with status 127`},
		"exit before Init, restarted":       {n: 3, flags: []string{"--restart", "1"}, orders: one("exit 3"), results: 1, line: `the job finished, but before its end peer 1 \(pid \d+\) exited with status 3`},
		"panic before Init, restarted":      {n: 3, flags: []string{"--restart", "1"}, orders: one("panic"), results: 1, line: `the job finished, but before its end peer 1 \(pid \d+\) exited with status 2`},
		"exit before Init, of all restarts": {n: 2, flags: []string{"--restart", "1"}, orders: map[string]string{"1 start": "exit 3", "1/2 start": "exit 3"}, status: 1, line: early + `exited with status 3`},
		"kill before Init": {n: 3, at: "start", do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "1")
		}, results: 1, line: killedOne},
		"kill before Init, restarted": {n: 3, flags: []string{"--restart", "1"}, at: "start", do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "1")
			s.await(t, "1/2 step")
		}, results: 1, line: killedOne},
		"kill of the only one before Init, restarted": {n: 1, flags: []string{"--restart", "1"}, at: "start", do: func(t *testing.T, s *scene) {
			s.lose(t, syscall.SIGKILL, "0")
			s.await(t, "0/2 step")
		}, results: 1, line: `the job finished, but before its end peer 0` + killed},
		"kill of all before Init": {n: 2, at: "start", do: func(t *testing.T, s *scene) {
			s.signal(t, syscall.SIGKILL, "0", "1")
		}, status: 1, line: `the job did not finish; likely cause: peers? [01].*killed\)`},
		"SIGTERM to a peer before Init": {n: 3, at: "start", do: func(t *testing.T, s *scene) {
			s.terminate(t, "1")
		}, results: 1, line: `the job finished, but before its end peer 1 \(pid \d+\) was killed by signal 15 \(terminated\)`},
		"SIGTERM to elrun before Init": {n: 3, at: "start", do: func(t *testing.T, s *scene) {
			s.Signal(t, syscall.SIGTERM)
			s.gone(t, "0", "1", "2")
		}, status: 143},
		"SIGTERM to elrun as one waits for others": {n: 3, at: "start", do: func(t *testing.T, s *scene) {
			s.release("0")
			process.Until(t, "a control socket", func() bool { return process.Sockets(t, s.main) > 0 })
			s.Signal(t, syscall.SIGTERM)
			s.gone(t, "0", "1", "2")
		}, status: 143},
	}
}
