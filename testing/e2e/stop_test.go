package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// elrun stop ends peers as SIGTERM does. The status of the launcher is 0, whatever the statuses of the
// peers are.
func TestStop(t *testing.T) {
	for role, says := range map[string]string{
		"loop":   `error: elastic: next view after epoch \d+: no further view: left as asked`,
		"polite": "ended politely",
	} {
		t.Run(role, func(t *testing.T) {
			e := start(t, role, 3)
			e.Expect(t, "[0] sums", "[1] sums", "[2] sums")
			e.stop(t, "3")
			if status := e.Wait(t); status != 0 {
				t.Errorf("elrun ended with status %d", status)
			}
			for i := range 3 { // a peer may end an epoch later than the others
				said := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] %s`, i, says))
				process.Until(t, said.String(), func() bool { return said.MatchString(e.Out.String()) })
			}
			e.job.CheckGone(t)
		})
	}
}

// elrun stop asks the peers themselves, so it also works if their launcher hangs.
func TestStopWithoutLauncher(t *testing.T) {
	e := start(t, "polite", 2)
	e.Expect(t, "[0] sums", "[1] sums")
	e.Signal(t, syscall.SIGSTOP)
	e.stop(t, "2")
	process.Until(t, "the end of all peers", func() bool { return len(e.peers(t)) == 0 })
	e.Signal(t, syscall.SIGCONT)
	if status := e.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	e.job.CheckGone(t)
}

// elrun stop ends a job at any moment of its start: also peers that have not called Init or are
// stopped, and before any peer has a control socket.
func TestStopDuringStart(t *testing.T) {
	const stopped = "elrun: the job was stopped before all had joined: it has no result\n"
	for name, prepare := range map[string]func(e *elrun){
		"at once":         func(e *elrun) {},
		"one has joined":  func(e *elrun) { e.Expect(t, "waiting", "[1] idle", "[2] idle") },
		"one is stopped":  func(e *elrun) { e.Expect(t, "[1] idle", "[2] idle"); e.suspend(t, 1) },
		"all are stopped": func(e *elrun) { e.Expect(t, "waiting", "[1] idle", "[2] idle"); e.suspend(t, 0, 1, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, "half", 3)
			process.Until(t, "a socket", func() bool { return process.Sockets(t, e.job.Name) > 0 })
			prepare(e)
			e.stop(t, "3")
			if status := e.Wait(t); status != 0 || e.Err.String() != stopped {
				t.Errorf("status %d, %q", status, e.Err.String())
			}
			e.job.CheckGone(t)
		})
	}
}

// A newcomer that is stopped does not keep elrun stop from ending the job.
func TestStopOfAStoppedNewcomer(t *testing.T) {
	e := start(t, "train", 2)
	e.expectSize(t, 0, 2)
	if _, stderr, status := process.Command(t, "scale", e.job.Name, "3"); status != 0 {
		t.Fatal(stderr)
	}
	e.suspend(t, 2)
	e.stop(t, "3")
	if status := e.Wait(t); status != 0 || !e.Says("the job was stopped") {
		t.Errorf("status %d", status)
	}
	e.job.CheckGone(t)
}

// After elrun stop no peer is started, also if a restart waits for its pause while the shell of another
// peer runs on.
func TestStopDropsRestarts(t *testing.T) {
	e := &elrun{job: process.NewJob(t), finish: filepath.Join(t.TempDir(), "finish")}
	e.launch(t, []string{"run", "-n", "2", "--restart", "5", "--name", e.job.Name, "--listen", listen(), "sh", "-c",
		`"$0"; if [ $? -gt 128 ]; then kill -9 $$; fi; sleep 3`, process.Self(t)}, roleVariable+"=train", finishVariable+"="+e.finish)
	e.expectSize(t, 0, 2)
	e.expectSize(t, 1, 2)
	first := e.pid(t, 1)
	e.hit(t, syscall.SIGKILL, 1)
	e.Expect(t, "peer 1 is started again, as a new member")
	process.Until(t, "the new process", func() bool { return e.pid(t, 1) != first })
	e.hit(t, syscall.SIGKILL, 1) // the second death within a short time
	e.Expect(t, "it is started again in 1s")
	e.stop(t, "1")
	if status := e.Wait(t); status != 0 || strings.Count(e.Err.String(), "is started again, as a new member") != 1 || !e.Says("the job was stopped") {
		t.Errorf("status %d, %s", status, e.Err.String())
	}
	e.job.CheckGone(t)
}

// A shell goes on after its peer has left as asked. The next program that it starts is told to end.
func TestStopOfAShell(t *testing.T) {
	e := &elrun{job: process.NewJob(t), finish: filepath.Join(t.TempDir(), "finish")}
	e.launch(t, []string{"run", "-n", "2", "--name", e.job.Name, "--listen", listen(), "--grace", "1m", "sh", "-c", `"$0"; "$0"; exit 3`, process.Self(t)},
		roleVariable+"=loop")
	e.Expect(t, "[0] sums", "[1] sums")
	e.stop(t, "2")
	if status := e.Wait(t); status != 0 || !e.Says("[0] error: launch: join job "+e.job.Name+": launcher ended the job: elrun stop has ended the job") {
		t.Errorf("status %d", status)
	}
	e.job.CheckGone(t)
}

// process returns the process ID of the running peer with a local index, as soon as there is one.
func (e *elrun) process(t *testing.T, index int) (pid int) {
	t.Helper()
	process.Until(t, fmt.Sprintf("a process of peer %d", index), func() bool {
		for _, p := range e.job.Peers(t) {
			if p.Index == index {
				pid = p.PID
			}
		}
		return pid > 0
	})
	return pid
}

// elrun stop ends the peers of all elruns that have some here, and each elrun ends.
func TestStopOfTwoElruns(t *testing.T) {
	e := start(t, "train", 2)
	e.expectSize(t, 0, 2)
	second := e.join(t, "train", 2, e.issue(t))
	e.expectSize(t, 0, 4)
	e.stop(t, "4")
	for _, one := range []*elrun{e, second} {
		if status := one.Wait(t); status != 0 || strings.Contains(one.Err.String(), "is lost") {
			t.Errorf("status %d, %s", status, one.Err.String())
		}
	}
	e.job.CheckGone(t)
}

// suspend stops peers by their local indices, as soon as they exist.
func (e *elrun) suspend(t *testing.T, indices ...int) {
	t.Helper()
	for _, i := range indices {
		process.Signal(t, e.process(t, i), syscall.SIGSTOP)
	}
}

// Peers that do not end within --grace are killed.
func TestGrace(t *testing.T) {
	e := start(t, "deaf", 2, "--grace", "10ms")
	e.Expect(t, "[0] sums", "[1] sums")
	e.Signal(t, syscall.SIGTERM)
	e.Expect(t, "peers still run 10ms after they were asked to end; killing them")
	if status := e.Wait(t); status != 143 {
		t.Errorf("status %d", status)
	}
	e.job.CheckGone(t)
}

func TestStopOfNoJob(t *testing.T) {
	if stdout, stderr, status := process.Command(t, "stop", "no-such-job"); status != 1 || stdout != "" ||
		!strings.HasPrefix(stderr, "elrun: no such job: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// stop runs elrun stop for the job. All n peers must have joined.
func (e *elrun) stop(t *testing.T, n string) {
	t.Helper()
	stdout, stderr, status := process.Command(t, "stop", e.job.Name)
	want := regexp.MustCompile("^stopped job " + e.job.Name + ": " + n + ` peers? (was|were) asked to end, and (was|were) gone [0-9.]+m?s later\n$`)
	if status != 0 || !want.MatchString(stdout) {
		t.Errorf("stop: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestDoctor(t *testing.T) {
	stdout, stderr, status := process.Command(t, "doctor")
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	form := regexp.MustCompile(`^(ok  |warn)  [\w ]+: .+\n$`)
	for line := range strings.Lines(stdout) {
		if !form.MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
	for _, name := range []string{"cores", "network", "control sockets", "libp2p over TCP and TLS", "UDP"} {
		if !strings.Contains(stdout, "  "+name+": ") {
			t.Errorf("no %s in:\n%s", name, stdout)
		}
	}
}
