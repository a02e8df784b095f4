package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit is what only a hang exceeds, on a machine however loaded.
const limit = 60 * time.Second

// environment of the tests, made once by TestMain.
const elrunVariable = "E2E_ELRUN"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	flag.Bool("long", false, "run the tests of balancing for as long as exact figures take")
	os.Exit(withElrun(m.Run))
}

// withElrun builds elrun for run.
func withElrun(run func() int) int {
	dir, err := os.MkdirTemp("", "elrun-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "elrun")
	build := exec.Command("go", "build", "-o", path, "github.com/elrun/elrun/cmd/elrun")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(elrunVariable, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}

// listenVariable says where peers listen, which is on the loopback interface, but for
// tests in a network of their own.
const listenVariable = "E2E_LISTEN"

// listen returns the value of --listen.
func listen() string { return cmp.Or(os.Getenv(listenVariable), "local") }

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// elrun is a running elrun.
type elrun struct {
	cmd      *exec.Cmd
	job      string
	finish   string // name of the file that ends the role train
	out, err output
	done     chan struct{} // it has ended
}

// start runs elrun with arguments before those of the program, which is the test's
// own binary in a role. The test fails if a process of the job is left at its end.
func start(t *testing.T, role string, n int, flags ...string) *elrun {
	t.Helper()
	e := &elrun{job: jobName(t), finish: filepath.Join(t.TempDir(), "finish"), done: make(chan struct{})}
	e.run(t, role, append([]string{"run", "-n", strconv.Itoa(n), "--name", e.job, "--listen", listen()}, flags...))
	return e
}

// join runs a second elrun, whose n peers join the job of e. A ticket comes first in
// flags, if there is one.
func (e *elrun) join(t *testing.T, role string, n int, flags ...string) *elrun {
	t.Helper()
	second := &elrun{job: e.job, finish: e.finish, done: make(chan struct{})}
	second.run(t, role, slices.Concat([]string{"join"}, flags, []string{"-n", strconv.Itoa(n), "--listen", listen()}))
	return second
}

// run starts elrun with those arguments, to which those of the program are added.
func (e *elrun) run(t *testing.T, role string, args []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e.launch(t, append(args, self), roleVariable+"="+role, finishVariable+"="+e.finish)
}

// launch runs elrun with those arguments and additions to the environment.
func (e *elrun) launch(t *testing.T, args []string, env ...string) {
	t.Helper()
	e.cmd = exec.Command(os.Getenv(elrunVariable), args...)
	e.cmd.Env = append(os.Environ(), env...)
	e.cmd.Stdout, e.cmd.Stderr = &e.out, &e.err
	e.begin(t)
}

// command runs a program that becomes elrun.
func (e *elrun) command(t *testing.T, program string, args ...string) {
	t.Helper()
	e.cmd = exec.Command(program, args...)
	e.cmd.Stdout, e.cmd.Stderr = &e.out, &e.err
	e.begin(t)
}

// begin starts the command and waits for it in the background.
func (e *elrun) begin(t *testing.T) {
	t.Helper()
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.done)
		_ = e.cmd.Wait() // the status is looked at in wait
	}()
	t.Cleanup(func() { e.cleanUp(t) })
}

// jobName is unique to the test and the test process.
func jobName(t *testing.T) string {
	name := regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(strings.TrimPrefix(t.Name(), "Test"), "-")
	return fmt.Sprintf("%.28s-%d", name, os.Getpid())
}

// cleanUp ends what a failed test left, and shows what was printed.
func (e *elrun) cleanUp(t *testing.T) {
	for _, pid := range e.peers(t) {
		t.Errorf("process %d of job %s is left", pid, e.job)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	select {
	case <-e.done:
	default:
		_ = e.cmd.Process.Kill()
		<-e.done
	}
	if t.Failed() {
		t.Logf("stdout of %v:\n%.4000s", e.cmd.Args, e.out.String())
		t.Logf("stderr:\n%.4000s", e.err.String())
	}
}

// wait returns elrun's exit status.
func (e *elrun) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-e.done:
		return e.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("elrun still runs after %v", limit)
		return 0
	}
}

// expect waits until elrun has printed each text, on either stream.
func (e *elrun) expect(t *testing.T, texts ...string) {
	t.Helper()
	until(t, fmt.Sprintf("%q on the output", texts), func() bool {
		all := e.out.String() + e.err.String()
		for _, s := range texts {
			if !strings.Contains(all, s) {
				return false
			}
		}
		return true
	})
}

// expectRanks waits until ranks 0..n-1 have said that they joined.
func (e *elrun) expectRanks(t *testing.T, n int) {
	t.Helper()
	for r := range n {
		e.expect(t, fmt.Sprintf("joined rank=%d ", r))
	}
}

// field returns what a rank printed after key= when it joined.
func (e *elrun) field(t *testing.T, rank int, key string) string {
	t.Helper()
	m := regexp.MustCompile(fmt.Sprintf(`joined rank=%d .*\b%s=(\[[^]]*\]|\S+)`, rank, key)).FindStringSubmatch(e.out.String())
	if m == nil {
		t.Fatalf("rank %d did not say its %s", rank, key)
	}
	return strings.Trim(m[1], "[]")
}

// signalPeer sends a signal to the process of a rank.
func (e *elrun) signalPeer(t *testing.T, rank int, sig syscall.Signal) {
	t.Helper()
	pid, err := strconv.Atoi(e.field(t, rank, "pid"))
	if err == nil {
		err = syscall.Kill(pid, sig)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// signal sends a signal to elrun itself.
func (e *elrun) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := e.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// peers returns the processes of the job that run, by their environment.
func (e *elrun) peers(t *testing.T) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, f := range files {
		b, err := os.ReadFile(f) // empty for a zombie, an error for one that is gone
		if err == nil && bytes.Contains(b, []byte("ELRUN_JOB="+e.job+"\x00")) {
			if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// sockets returns the control sockets of the job that the kernel knows.
func (e *elrun) sockets(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/"+e.job+":")
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// stays fails the test if a state that holds now ends within a time.
func stays(t *testing.T, d time.Duration, what string, state func() bool) {
	t.Helper()
	over := time.After(d)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for state() {
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
	t.Fatalf("it is not %s any more", what)
}

// elrunCommand runs an elrun subcommand to its end.
func elrunCommand(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv(elrunVariable), args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}
