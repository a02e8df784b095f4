package ssh

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// job is a job on several hosts.
type job struct {
	*process.Job
	elrun *process.Process
	log   *process.Log
}

// start starts a job with the given number of steps. flags come before the program.
func (s *server) start(t *testing.T, steps int64, pace time.Duration, flags ...string) *job {
	t.Helper()
	j := &job{Job: process.NewJob(t), log: process.NewLog(t, filepath.Join(t.TempDir(), "events"))}
	args := append([]string{"--name", j.Name, "--events", j.log.Path, "--ssh", s.ssh(), "--connect-timeout", process.Limit.String(), "-x", role(steps, pace)}, flags...)
	j.elrun = j.Job.Start(t, exec.Command(process.Elrun(), append(args, process.Self(t))...))
	return j
}

// trains waits for a step with the given number of members.
func (j *job) trains(t *testing.T, members int) {
	t.Helper()
	j.elrun.Until(t, "a step", func() bool {
		j.log.Read(t)
		return j.log.Step > 0 && len(j.log.View.Members) == members
	})
}

// finishes waits for the end of the job. It checks the status, the result of all steps, and that no
// process and no file of the job is left.
func (j *job) finishes(t *testing.T, steps int64) {
	t.Helper()
	if status := j.elrun.Wait(t); status != 0 || !strings.Contains(j.elrun.Out.String(), total(steps)) {
		t.Errorf("status %d, want 0 and %s", status, total(steps))
	}
	j.gone(t)
}

// gone waits until the job has no peers, and checks that no file of the job is left.
func (j *job) gone(t *testing.T) {
	t.Helper()
	process.Until(t, "the end of all peers", func() bool { return len(j.Peers(t)) == 0 })
	j.CheckGone(t)
}

func TestFourHosts(t *testing.T) {
	s := newServer(t)
	j := s.start(t, 5, 0, "-H", "a:2,b,c,d")
	j.finishes(t, 5)
	out := j.elrun.Out.String()
	for _, want := range []string{"[0@a] step 5 of 5", "done steps=5 peers=5"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if n := len(process.After[event.Done](j.log.Read(t).Events, time.Time{})); n == 0 {
		t.Error("no done event in the log")
	}
}

// TestStart measures the time from the command to the first step, and from Ctrl-C until no process
// and no file of the job is left.
func TestStart(t *testing.T) {
	s := newServer(t)
	runs := 1
	if long() {
		runs = 50
	}
	var first, last []time.Duration
	for range runs {
		begun := time.Now()
		j := s.start(t, 1_000_000, time.Millisecond, "-H", "a,b,c,d")
		j.elrun.Expect(t, "step 1 of 4")
		first = append(first, time.Since(begun))
		begun = time.Now()
		j.elrun.Signal(t, syscall.SIGINT)
		if status := j.elrun.Wait(t); status != 128+int(syscall.SIGINT) {
			t.Errorf("status %d", status)
		}
		j.gone(t)
		last = append(last, time.Since(begun))
	}
	t.Logf("to the first step %v; from Ctrl-C to nothing left %v", first, last)
}

// When a peer, the launcher or a connection is lost, a job on several hosts continues or ends like
// a job on one host. No process and no file of the job is left.
func TestEnds(t *testing.T) {
	t.Run("peer killed", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		j := s.start(t, 60, 10*time.Millisecond, "-H", "a,b,c")
		j.trains(t, 3)
		process.Signal(t, j.Peers(t)[1].PID, syscall.SIGKILL)
		j.finishes(t, 60)
	})
	t.Run("launcher killed", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		j := s.start(t, 1_000_000, time.Millisecond, "-H", "a,b,c")
		j.trains(t, 3)
		j.elrun.Signal(t, syscall.SIGKILL)
		j.elrun.Wait(t)
		j.gone(t)
	})
	t.Run("launcher killed, detached", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		j := s.start(t, 100, 50*time.Millisecond, "-H", "a,b,c", "--detach")
		j.trains(t, 3)
		peers := j.Peers(t)
		j.elrun.Signal(t, syscall.SIGKILL)
		j.elrun.Wait(t)
		process.Stays(t, 500*time.Millisecond, "three peers that train on", func() bool { return len(j.Peers(t)) == len(peers) })
		j.gone(t)
	})
	t.Run("connection lost", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		j := s.start(t, 60, 10*time.Millisecond, "-H", "a,b,c")
		j.trains(t, 3)
		process.Signal(t, connection(t, j.elrun.PID(), "b"), syscall.SIGKILL)
		j.finishes(t, 60)
		if said := j.elrun.Err.String(); !strings.Contains(said, "host b: the connection to it was lost") {
			t.Errorf("printed %q", said)
		}
	})
	t.Run("launcher stopped", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		j := s.start(t, 200, 10*time.Millisecond, "-H", "a,b,c")
		j.trains(t, 3)
		j.elrun.Signal(t, syscall.SIGSTOP)
		process.Pause(t, time.Second)
		j.elrun.Signal(t, syscall.SIGCONT)
		j.finishes(t, 200)
	})
}

// connection returns the process ID of the ssh that an elrun uses for a host.
func connection(t *testing.T, elrun int, host string) int {
	t.Helper()
	out, err := exec.Command("ps", "-o", "pid=,args=", "--ppid", itoa(elrun)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, f := range fields {
			if f == host {
				return atoi(t, fields[0])
			}
		}
	}
	t.Fatalf("no connection to %s: %s", host, out)
	return 0
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
