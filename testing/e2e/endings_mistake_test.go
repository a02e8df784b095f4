package e2e

import (
	"fmt"
	"syscall"
	"testing"
)

// endingsByMistake are those of programs that are wrong at one peer, or at all.
func endingsByMistake() map[string]ending {
	all := map[string]ending{
		"results that differ":       {n: 3, role: "disagree", status: 1, line: `(the job fails: )?peers report different results: .*peer [0-2].*peer [0-2].*`},
		"no sum, of all":            {n: 3, orders: map[string]string{"step 3": "no sum", "step 4": "no sum", "step 5": "no sum"}, results: 1},
		"no step, of all":           {n: 3, orders: map[string]string{"step 5": "no step"}, status: 1, line: mistaken + `.*step 5.*`},
		"two steps in one, of all":  {n: 3, orders: map[string]string{"step 5": "twice"}, status: 1, line: mistaken + `.*step 4 to step 6.*`},
		"left the loop, of all":     {n: 3, orders: map[string]string{"step 5": "leave the loop"}, status: 1, line: mistaken + `.*left its loop in step 5.*`},
		"no restart after mistakes": {n: 2, flags: []string{"--restart", "5"}, orders: map[string]string{"1 step 5": "twice"}, status: 1, line: mistaken + `.*peer 1\b.*`},
	}
	for who := range 3 {
		for order, about := range map[string]string{
			"differ":         `.*differs from the others' state.*`,
			"no sum":         `.*`,
			"no step":        `.*neither failed nor committed step 5.*`,
			"twice":          `.*from step 4 to step 6.*`,
			"leave the loop": `.*left its loop in step 5.*`,
			"part":           `.*`,
			"panic":          `.*left its loop in step 5 by break, return or a panic.*`,
		} {
			all[fmt.Sprintf("%s, of peer %d", order, who)] = ending{n: 3, orders: map[string]string{fmt.Sprintf("%d step 5", who): order},
				status: 1, line: mistaken + fmt.Sprintf(`.*(peer|rank) %d\b`, who) + about}
		}
		all[fmt.Sprintf("other steps, of peer %d", who)] = ending{n: 3, orders: map[string]string{fmt.Sprintf("%d start", who): "steps 30"},
			status: 1, line: mistaken + fmt.Sprintf(`.*(peer|rank) %d\b.*`, who)}
	}
	return all
}

// peersOnHost is the number of peers of the endings with the flag -H.
const peersOnHost = 2

// endingsOfHosts are those of peers under an agent.
func endingsOfHosts() map[string]ending {
	const at = "step 5"
	flags := []string{"-H", fmt.Sprint("localhost:", peersOnHost), "-x", roleVariable, "-x", stageVariable, "-x", elrunVariable, "-x", lengthVariable}
	return map[string]ending{
		"success on a host":           {flags: flags, results: 1},
		"kill on a host":              {flags: flags, at: at, do: func(t *testing.T, s *scene) { s.lose(t, syscall.SIGKILL, "1") }, results: 1, line: killedOne},
		"kill of all on a host":       {flags: flags, at: at, do: func(t *testing.T, s *scene) { s.lose(t, syscall.SIGKILL, "0", "1") }, status: 1, line: `the job did not finish; likely cause: peer [01]` + killed},
		"SIGTERM to a peer on a host": {flags: flags, at: at, do: func(t *testing.T, s *scene) { s.lose(t, syscall.SIGTERM, "1") }, results: 1},
		"SIGTERM to elrun with a host": {flags: flags, at: at, do: func(t *testing.T, s *scene) {
			s.Signal(t, syscall.SIGTERM)
			s.release()
			s.gone(t, "0", "1")
		}, status: 143},
		"elrun stop with a host": {flags: flags, at: at, do: func(t *testing.T, s *scene) {
			s.release()
			s.command(t, 0, "stop")
		}, line: stopped},
		"exit before Init on a host": {flags: flags, orders: map[string]string{"1 start": "exit 3"}, status: 1, line: early + `exited with status 3`},
	}
}
