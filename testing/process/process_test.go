package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// recorder is the testing.TB of a test within a test, which may fail. Its Fatalf panics, and
// function run recovers.
type recorder struct {
	testing.TB
	errors, logs []string
	cleanUps     []func()
}

func (r *recorder) Helper()                      {}
func (r *recorder) Cleanup(f func())             { r.cleanUps = append(r.cleanUps, f) }
func (r *recorder) Failed() bool                 { return len(r.errors) > 0 }
func (r *recorder) Logf(format string, a ...any) { r.logs = append(r.logs, fmt.Sprintf(format, a...)) }
func (r *recorder) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}

// fatal is the value with which the recorder's Fatalf panics.
type fatal struct{}

func (r *recorder) Fatalf(format string, a ...any) {
	r.Errorf(format, a...)
	panic(fatal{})
}

func (r *recorder) Fatal(a ...any) { r.Fatalf("%s", fmt.Sprint(a...)) }

// run runs f as a test of its own, and returns the errors and the log of that test.
func run(t *testing.T, f func(t testing.TB)) (errors, logs string) {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if x := recover(); x != nil && x != any(fatal{}) {
				panic(x)
			}
		}()
		f(r)
	}()
	for _, f := range slices.Backward(r.cleanUps) {
		f()
	}
	return strings.Join(r.errors, "\n"), strings.Join(r.logs, "\n")
}

func shell(script string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
}

func TestStart(t *testing.T) {
	p := process.Start(t, shell("echo one; echo two >&2; read line; echo $line; exit 3", "x"))
	p.Expect(t, "two") // its standard input is empty
	if status := p.Wait(t); status != 3 || p.Running() {
		t.Errorf("status %d, running: %v", status, p.Running())
	}
	if p.Out.String() != "one\n\n" || p.Err.String() != "two\n" || p.Says("one", "three") {
		t.Errorf("it printed %q and %q", p.Out.String(), p.Err.String())
	}
}

func TestStartKeepsStreams(t *testing.T) {
	var own process.Output
	cmd := shell("echo one")
	cmd.Stdout = &own
	p := process.Start(t, cmd)
	if p.Wait(t); own.String() != "one\n" || p.Out.String() != "" {
		t.Errorf("%q and %q", own.String(), p.Out.String())
	}
}

// The end of a test kills its processes. If the test has failed, its log has the output of the
// processes.
func TestStartCleansUp(t *testing.T) {
	var p *process.Process
	errors, logs := run(t, func(t testing.TB) {
		p = process.Start(t, shell("echo said; exec sleep 1000"))
		p.Expect(t, "said")
		t.Errorf("it fails")
	})
	if errors != "it fails" || !strings.Contains(logs, "said\n") || process.Alive(p.PID()) {
		t.Errorf("errors %q, log %q, alive: %v", errors, logs, process.Alive(p.PID()))
	}
}

// After a process has ended, Expect and Until fail at once.
func TestExpectOfEnded(t *testing.T) {
	errors, _ := run(t, func(t testing.TB) { process.Start(t, shell("echo one; exit 3")).Expect(t, "two") })
	if !strings.Contains(errors, "ended (exit status 3)") {
		t.Errorf("errors: %q", errors)
	}
}

func TestSignal(t *testing.T) {
	p := process.Start(t, exec.Command("sleep", "1000"))
	process.Until(t, "sleep", func() bool { return process.Program(p.PID()) == "sleep" })
	p.Signal(t, syscall.SIGSTOP)
	process.Until(t, "it to be stopped", func() bool { return process.State(p.PID()) == "T" })
	if !process.Alive(p.PID()) || process.StatusField(p.PID(), "VmRSS") == "" || process.StatusField(p.PID(), "Vm") != "" {
		t.Error("a stopped process is not alive, or has no memory")
	}
	p.Kill()
	if status := p.Wait(t); status != -1 || process.Alive(p.PID()) || process.State(p.PID()) != "" {
		t.Errorf("status %d, state %q", status, process.State(p.PID()))
	}
	process.Signal(t, p.PID(), syscall.SIGTERM) // no error, although the process has ended
}

func TestZombie(t *testing.T) {
	p := process.Start(t, shell("sleep 1000 & echo $!; exec sleep 1000")) // does not wait for its child
	process.Until(t, "a child", func() bool { return strings.HasSuffix(p.Out.String(), "\n") })
	var child int
	if _, err := fmt.Sscan(p.Out.String(), &child); err != nil {
		t.Fatal(err)
	}
	process.Signal(t, child, syscall.SIGKILL)
	process.Until(t, "a zombie", func() bool { return process.State(child) == "Z" })
	if process.Alive(child) {
		t.Error("a zombie is taken to be alive")
	}
}

func TestStays(t *testing.T) {
	process.Stays(t, 20*time.Millisecond, "true", func() bool { return true })
	looks := 0
	errors, _ := run(t, func(t testing.TB) {
		process.Stays(t, process.Limit, "few looks", func() bool { looks++; return looks < 3 })
	})
	if errors != fmt.Sprintf("not for %v: few looks", process.Limit) || looks != 3 {
		t.Errorf("%d looks, %q", looks, errors)
	}
}

func TestHolds(t *testing.T) {
	if process.Holds(t.Context(), time.Millisecond, func() bool { return false }) {
		t.Error("a false condition became true")
	}
	looks := 0
	if !process.Holds(t.Context(), process.Limit, func() bool { looks++; return looks == 3 }) || looks != 3 {
		t.Errorf("not true after %d looks", looks)
	}
}

// peer starts a process that belongs to a job.
func peer(t testing.TB, job *process.Job, index int) *process.Process {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), "ELRUN_JOB="+job.Name, fmt.Sprintf("ELRUN_INDEX=%d", index))
	p := job.Start(t, cmd)
	process.Until(t, "a peer", func() bool {
		return slices.ContainsFunc(job.Peers(t), func(q process.Peer) bool { return q.PID == p.PID() })
	})
	return p
}

func TestPeers(t *testing.T) {
	errors, _ := run(t, func(t testing.TB) {
		job, other := process.NewJob(t), process.NewJob(t)
		if job.Name == other.Name {
			t.Errorf("two jobs are called %s", job.Name)
		}
		for i := range 3 {
			peer(t, job, 2-i)
		}
		peers := job.Peers(t)
		for i, p := range peers {
			if p.PID != job.Elruns[i].PID() || p.Index != 2-i || p.Parent != os.Getpid() || p.Env("ELRUN_JOB") != job.Name || p.Env("ELRUN") != "" {
				t.Errorf("%+v", p)
			}
		}
		if n := len(other.Peers(t)); len(peers) != 3 || n != 0 || len(job.PeersOf(t, job.Elruns[0])) != 0 {
			t.Errorf("%d peers, %d of another job", len(peers), n)
		}
		for _, p := range job.Elruns {
			p.Kill()
		}
		job.CheckGone(t)
	})
	if errors != "" {
		t.Error(errors)
	}
}

// A peer that is left over from a test is an error, and is killed.
func TestLeftPeers(t *testing.T) {
	var pid int
	errors, logs := run(t, func(t testing.TB) {
		job := process.NewJob(t)
		p := job.Start(t, exec.Command("env", "ELRUN_INDEX=7", "ELRUN_JOB="+job.Name, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"))
		p.Wait(t)
		if _, err := fmt.Sscan(p.Out.String(), &pid); err != nil {
			t.Fatal(err)
		}
	})
	if !strings.Contains(errors, fmt.Sprintf("peer 7 of job LeftPeers-%d", os.Getpid())) || !strings.Contains(errors, fmt.Sprintf("was left as process %d", pid)) {
		t.Errorf("errors: %q", errors)
	}
	if !strings.Contains(logs, fmt.Sprintf("\n%d\n", pid)) || process.Alive(pid) {
		t.Errorf("log %q; alive: %v", logs, process.Alive(pid))
	}
}

func TestCheckGone(t *testing.T) {
	errors, _ := run(t, func(t testing.TB) {
		job := process.NewJob(t)
		p := peer(t, job, 1)
		job.CheckGone(t)
		p.Kill()
	})
	if !strings.Contains(errors, "still runs") || strings.Contains(errors, "was left") {
		t.Errorf("errors: %q", errors)
	}
}

// elrun exists only during the call of WithElrun. A job of this elrun has peers, and UserProgram
// builds a program in the same folder.
func TestWithElrun(t *testing.T) {
	path := ""
	status := process.WithElrun(func() int {
		path = process.Elrun()
		if out, errs, status := process.Command(t, "--help"); status != 0 || !strings.Contains(out, "elrun") {
			t.Errorf("status %d, %s%s", status, out, errs)
		}
		program := process.UserProgram(t, "greeter", "package main\n\nfunc main() { println(\"hello\") }\n")
		if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != "hello\n" {
			t.Errorf("the program of a user: %q, %v", out, err)
		}
		job := process.NewJob(t)
		p := job.Start(t, exec.Command(process.Elrun(), "run", "-n", "2", "--name", job.Name, "sleep", "1000"))
		p.Until(t, "peers", func() bool { return len(job.PeersOf(t, p)) == 2 })
		p.Signal(t, syscall.SIGTERM)
		p.Wait(t)
		job.CheckGone(t)
		return 7
	})
	if _, err := os.Stat(path); status != 7 || !os.IsNotExist(err) {
		t.Errorf("status %d; %s: %v", status, path, err)
	}
}

func TestBuildFails(t *testing.T) {
	if err := process.Build(filepath.Join(t.TempDir(), "x"), "cmd/none"); err == nil || !strings.Contains(err.Error(), "build cmd/none") {
		t.Error(err)
	}
}

func TestLog(t *testing.T) {
	l := process.NewLog(t, filepath.Join(t.TempDir(), "events"))
	if n := len(l.Read(t).Events); n != 0 {
		t.Errorf("%d events in no file", n)
	}
	f, err := os.Create(l.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	write := func(second int, rest string) {
		if _, err := fmt.Fprintf(f, `{"time":%q,%s`, begun.Add(time.Duration(second)*time.Second).Format(time.RFC3339), rest); err != nil {
			t.Fatal(err)
		}
	}
	write(1, `"event":"view","epoch":2,"peer":"a","members":["a","b"]}`+"\n")
	write(2, `"event":"step","epoch":2,"step":7,"peer":"a"}`+"\n")
	write(3, `"event":"step","epoch":1,"step":6,"peer":"b"}`+"\n"+`{"event":"view",`)
	l.Read(t)
	if len(l.Events) != 3 || l.Step != 7 || l.StepEpoch != 2 || l.ViewEvent.Epoch != 2 || len(l.View.Members) != 2 {
		t.Errorf("%+v", l)
	}
	if _, err := f.WriteString(`"epoch":1,"peer":"b","members":["a"]}` + "\n"); err != nil {
		t.Fatal(err)
	}
	if l.Read(t).ViewEvent.Epoch != 2 || len(l.Events) != 4 {
		t.Errorf("a line that came in two parts: %+v", l)
	}
	l.Events = l.Events[:3]
	if n := len(l.Since(begun.Add(2500 * time.Millisecond))); n != 1 {
		t.Errorf("%d events since the second", n)
	}
	if n := len(process.After[event.Step](l.Events, begun.Add(2*time.Second))); n != 1 {
		t.Errorf("%d steps after the second second", n)
	}
	e, ok := process.First(l.Events, func(e event.Event, _ event.Step) bool { return e.Step < 7 })
	if _, none := process.First(l.Events, func(event.Event, event.Lost) bool { return true }); !ok || e.Peer != "b" || none {
		t.Errorf("%+v, %v, %v", e, ok, none)
	}
	write(4, "nonsense\n")
	if errors, _ := run(t, func(t testing.TB) { l.Read(t) }); !strings.Contains(errors, "nonsense") {
		t.Errorf("errors: %q", errors)
	}
}

func TestLogOfFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	_, logs := run(t, func(t testing.TB) {
		process.NewLog(t, path)
		if err := os.WriteFile(path, []byte("one event\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Errorf("it fails")
	})
	if !strings.Contains(logs, "(10 bytes, <nil>):\none event\n") {
		t.Errorf("log: %q", logs)
	}
}

func TestTail(t *testing.T) {
	for text, want := range map[string]string{"ab\ncd\n": "ab\ncd\n", "abc\ndef\nghi\n": "...\nghi\n"} {
		if got := process.Tail(text, 7); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}
