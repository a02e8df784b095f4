package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// limit is so long that only a hang exceeds it, even on a loaded machine.
const limit = process.Limit

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	flag.Bool("long", false, "run the tests of balancing for as long as exact figures take")
	os.Exit(process.WithElrun(m.Run))
}

// listenVariable is the environment variable with the addresses on which peers listen. The default is the loopback interface;
// tests in a network namespace of their own set it.
const listenVariable = "E2E_LISTEN"

// listen returns the value of the flag --listen.
func listen() string { return cmp.Or(os.Getenv(listenVariable), "local") }

// elrun is a running elrun.
type elrun struct {
	*process.Process // nil before the start
	job              *process.Job
	finish           string // path of the file that ends the role train
}

// start starts elrun with n peers in a role. flags come before the program, which is the test
// binary. The test fails if a process of the job is left at the end of the test.
func start(t *testing.T, role string, n int, flags ...string) *elrun {
	t.Helper()
	e := &elrun{job: process.NewJob(t), finish: filepath.Join(t.TempDir(), "finish")}
	e.run(t, role, append([]string{"run", "-n", strconv.Itoa(n), "--name", e.job.Name, "--listen", listen()}, flags...))
	return e
}

// join starts a second elrun, whose n peers join the job of e. If there is a ticket, it is the first of flags.
func (e *elrun) join(t *testing.T, role string, n int, flags ...string) *elrun {
	t.Helper()
	second := &elrun{job: e.job, finish: e.finish}
	second.run(t, role, slices.Concat([]string{"join"}, flags, []string{"-n", strconv.Itoa(n), "--listen", listen()}))
	return second
}

// run starts elrun with the given arguments and the test binary in a role as program.
func (e *elrun) run(t *testing.T, role string, args []string) {
	t.Helper()
	e.launch(t, append(args, process.Self(t)), roleVariable+"="+role, finishVariable+"="+e.finish)
}

// launch starts elrun with the given arguments and additional environment variables.
func (e *elrun) launch(t *testing.T, args []string, env ...string) {
	t.Helper()
	cmd := exec.Command(process.Elrun(), args...)
	cmd.Env = append(os.Environ(), env...)
	e.begin(t, cmd)
}

// begin starts a command that is elrun or becomes elrun.
func (e *elrun) begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	e.Process = e.job.Start(t, cmd)
}

// expectRanks waits until ranks 0..n-1 have printed that they joined.
func (e *elrun) expectRanks(t *testing.T, n int) {
	t.Helper()
	for r := range n {
		e.Expect(t, fmt.Sprintf("joined rank=%d ", r))
	}
}

// field returns the value that a rank printed after key= when it joined.
func (e *elrun) field(t *testing.T, rank int, key string) string {
	t.Helper()
	m := regexp.MustCompile(fmt.Sprintf(`joined rank=%d .*\b%s=(\[[^]]*\]|\S+)`, rank, key)).FindStringSubmatch(e.Out.String())
	if m == nil {
		t.Fatalf("rank %d did not say its %s", rank, key)
	}
	return strings.Trim(m[1], "[]")
}

// signalPeer sends a signal to the process of a rank.
func (e *elrun) signalPeer(t *testing.T, rank int, sig syscall.Signal) {
	t.Helper()
	pid, err := strconv.Atoi(e.field(t, rank, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	process.Signal(t, pid, sig)
}

// peers returns the process IDs of the running peers.
func (e *elrun) peers(t *testing.T) []int {
	t.Helper()
	var pids []int
	for _, p := range e.job.Peers(t) {
		pids = append(pids, p.PID)
	}
	return pids
}
