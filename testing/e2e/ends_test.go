package e2e

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// ending is one way in which a job ends.
type ending struct {
	n       int      // peers; 0 with the flag -H
	flags   []string // of elrun
	role    string   // of the test binary; subject if empty
	program []string // command; {} stands for the test binary, which is the default
	orders  map[string]string
	// at is the point where the first processes wait until all of them are there; then do acts. Without do the job takes 20 steps, and
	// with do as many as it needs.
	at string
	do func(t *testing.T, s *scene)

	status  int
	line    string // regular expression of the one last line on standard error; empty if the result says all, or nobody needs a reason
	results int    // results on the standard outputs of all elruns of the job
	joined  *end   // of the second elrun
}

// end is how an elrun ends.
type end struct {
	status int
	line   string
}

// endings returns all of them.
func endings() map[string]ending {
	all := map[string]ending{}
	for _, part := range []map[string]ending{endingsAtStart(), endingsOfCrashes(), endingsAtEnd(), endingsOfPrograms(), endingsByRequest(),
		endingsOfStops(), endingsOfSizes(), endingsAfterLeaves(), endingsOfNewcomers(), endingsByMistake(), endingsOfHosts(), endingsOfTwo(),
		endingsOfNames(), endingsOfHalves()} {
		for name, e := range part {
			if _, ok := all[name]; ok {
				panic(name)
			}
			all[name] = e
		}
	}
	return all
}

// A job that ends has the status and the one last line that the documents promise, with the peer that is to blame. Nothing of it is left.
func TestEndings(t *testing.T) {
	for name, e := range endings() {
		t.Run(name, e.test)
	}
}

// scene is the job of an ending.
type scene struct {
	*elrun
	*stage
	second *elrun // nil if none has joined
	main   string // name of the job
}

func (e ending) test(t *testing.T) {
	t.Parallel()
	s := &scene{elrun: &elrun{job: process.NewJob(t)}, stage: openStage(t, e.orders)}
	if s.main = s.job.Name; e.do != nil {
		s.holds = []string{e.at}
	}
	flags := slices.Concat([]string{"run", "--name", s.main, "--listen", listen()}, e.flags)
	if e.n > 0 {
		flags = append(flags, "-n", strconv.Itoa(e.n))
	}
	s.launch(t, slices.Concat(flags, []string{"--"}, e.command(t)), e.environment(s, "")...)
	if e.do != nil {
		for i := range cmp.Or(e.n, peersOnHost) {
			s.await(t, fmt.Sprint(i, " ", e.at))
		}
		e.do(t, s)
		s.stage.end()
	}
	end{e.status, e.line}.check(t, "elrun", s.elrun)
	out := "\n" + s.Out.String()
	if e.joined != nil {
		e.joined.check(t, "the second elrun", s.second)
		out += "\n" + s.second.Out.String()
	}
	// Each elrun whose peers have rank 0, as far as it knows, prints the result.
	if n := strings.Count(out, "\ndone steps="); n != e.results && (e.joined == nil || min(n, 1) != e.results) {
		t.Errorf("%d results, want %d", n, e.results)
	}
	s.job.CheckGone(t)
}

// command returns the program of the peers.
func (e ending) command(t *testing.T) []string {
	t.Helper()
	command := slices.Clone(e.program)
	if len(command) == 0 {
		command = []string{"{}"}
	}
	for i := range command {
		command[i] = strings.ReplaceAll(command[i], "{}", process.Self(t))
	}
	return command
}

// environment returns what the peers of an elrun need; prefix begins their names.
func (e ending) environment(s *scene, prefix string) []string {
	role, steps := e.role, "20"
	if role == "" {
		role = "subject"
	}
	if e.do != nil {
		steps = "1000000"
	}
	return []string{roleVariable + "=" + role, stageVariable + "=" + s.path, lengthVariable + "=" + steps, elrunVariable + "=" + prefix}
}

// lastLines matches the lines that say how a job has ended.
func lastLines() *regexp.Regexp {
	return regexp.MustCompile(`^elrun: (the job (finished|has finished|fails|failed|did not finish|was stopped|gave up|goes on)|.* the job goes on|` +
		`peers report different results|the newcomers? (was|were) (refused|not let in)|(this|these) peers? (has|have) (left|been put out)|the programs? (has|have) ended)`)
}

// check waits for the end of an elrun, and checks its status and its last line.
func (want end) check(t *testing.T, name string, e *elrun) {
	t.Helper()
	if status := e.Wait(t); status != want.status {
		t.Errorf("%s ended with status %d, want %d", name, status, want.status)
	}
	var said []string
	ends, last := lastLines(), ""
	for line := range strings.Lines(e.Err.String()) {
		if last = strings.TrimSuffix(line, "\n"); ends.MatchString(last) {
			said = append(said, last)
		}
	}
	switch form := regexp.MustCompile("^(elrun: )?(" + want.line + ")$"); {
	case len(said) == 0 && form.MatchString(""):
	case len(said) > 1:
		t.Errorf("%s said %d last lines: %q", name, len(said), said)
	case !form.MatchString(last):
		t.Errorf("%s said %q at the end, want %q", name, last, want.line)
	}
	if len(last) > longestLine {
		t.Errorf("the last line has %d bytes: %s", len(last), last)
	}
}

// join starts the second elrun, with n peers of the role subject.
func (s *scene) join(t *testing.T, n int, flags ...string) {
	t.Helper()
	s.second = &elrun{job: s.job}
	args := slices.Concat([]string{"join", "--name", s.main, "-n", strconv.Itoa(n), "--listen", listen()}, flags, []string{"--", process.Self(t)})
	s.second.launch(t, args, ending{do: func(*testing.T, *scene) {}}.environment(s, "j")...)
}

// command runs a command of elrun for the job, as in s.command(t, 0, "scale", "3"), which must end with a status.
func (s *scene) command(t *testing.T, status int, verb string, args ...string) {
	t.Helper()
	out, errs, got := process.Command(t, slices.Concat([]string{verb, s.main}, args)...)
	if got != status {
		t.Errorf("elrun %s ended with status %d, want %d: %s%s", verb, got, status, out, errs)
	}
}

// lose sends a signal to processes that wait, lets all go on, and waits for the ends of these processes.
func (s *scene) lose(t *testing.T, sig syscall.Signal, names ...string) {
	t.Helper()
	s.signal(t, sig, names...)
	if sig == syscall.SIGKILL {
		s.gone(t, names...)
	}
	s.release()
	s.gone(t, names...)
}

// terminate ends processes that do not handle SIGTERM, because they have no group yet, or none any more.
func (s *scene) terminate(t *testing.T, names ...string) {
	t.Helper()
	s.signal(t, syscall.SIGTERM, names...)
	s.gone(t, names...)
}
