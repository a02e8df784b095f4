package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// end creates the file that ends the roles train and chatty.
func (e *elrun) end(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(e.finish, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// expectWholeDone waits for the end of a job that has lost no peer.
func (e *elrun) expectWholeDone(t *testing.T) {
	t.Helper()
	if status := e.Wait(t); status != 0 || !strings.Contains(e.Out.String(), "\ndone steps=") {
		t.Errorf("status %d, want 0 and a result", status)
	}
	for _, word := range []string{"lost", "put out", "killing"} {
		if strings.Contains(e.Err.String(), word) {
			t.Errorf("the job had %q", word)
		}
	}
}

// A launcher that reads nothing for a while does not count as dead, and its job continues.
func TestLauncherStopped(t *testing.T) {
	e := start(t, "chatty", 2)
	e.expectRanks(t, 2)
	progress := func() string {
		b, _ := os.ReadFile(e.finish + progressSuffix) // ReadFile fails before the first round
		return string(b)
	}
	e.Signal(t, syscall.SIGSTOP)
	before := len(progress())
	process.Until(t, "more events than sockets and peers hold", func() bool { return len(progress()) > before+200 })
	e.end(t)
	process.Until(t, "the end of the last round", func() bool { return strings.Count(progress(), "\n") == 2 })
	e.Signal(t, syscall.SIGCONT)
	e.expectWholeDone(t)
	e.Expect(t, "of its event log dropped")
}

// longestSilence is longer than a member may be silent without being put out.
const longestSilence = 5 * time.Second

// SIGTSTP stops the peers together with elrun. After SIGCONT the job continues, and no peer is
// lost.
func TestSuspended(t *testing.T) {
	log := filepath.Join(t.TempDir(), "events")
	e := start(t, "train", 3, "--events", log)
	e.expectRanks(t, 3)
	e.Expect(t, "session epoch=")
	e.Signal(t, syscall.SIGTSTP)
	stopped := func() bool {
		return len(e.peers(t)) == 3 && !slices.ContainsFunc(append(e.peers(t), e.PID()), func(pid int) bool { return process.State(pid) != "T" })
	}
	process.Until(t, "all to be stopped", stopped)
	steps := func() string {
		b, _ := os.ReadFile(log) // ReadFile fails before the first event
		return string(b)
	}
	before := strings.Count(steps(), "\n")
	process.Stays(t, longestSilence, "stopped", stopped)
	e.Signal(t, syscall.SIGCONT)
	process.Until(t, "further steps", func() bool { return strings.Count(steps(), "\n") > before+300 })
	e.end(t)
	e.expectWholeDone(t)
}

// commandLine returns the arguments of an elrun with n peers. The caller appends the program.
func (e *elrun) commandLine(t *testing.T, n int, flags ...string) []string {
	t.Helper()
	return append([]string{"run", "-n", strconv.Itoa(n), "--name", e.job.Name, "--listen", listen()}, flags...)
}

// prepare returns an elrun that e.launch or e.begin will start, and sets the environment variables
// of a role.
func prepare(t *testing.T, role string) *elrun {
	t.Helper()
	e := &elrun{job: process.NewJob(t), finish: filepath.Join(t.TempDir(), "finish")}
	t.Setenv(roleVariable, role)
	t.Setenv(finishVariable, e.finish)
	return e
}

// A peer that another program has started is asked to leave. The other program continues after the peer has ended.
func TestWrapped(t *testing.T) {
	self := process.Self(t)
	for name, wrapper := range map[string][]string{
		"sh":      {"sh", "-c", `"$0"; echo "wrapper went on"`, self},
		"time":    {"time", self},
		"strace":  {"strace", "-f", "-o", "/dev/null", self},
		"timeout": {"timeout", "100", self},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(wrapper[0]); err != nil {
				t.Skip(err)
			}
			e := prepare(t, "train")
			e.launch(t, append(e.commandLine(t, 2), wrapper...))
			e.expectRanks(t, 2)
			e.Signal(t, syscall.SIGTERM)
			if status := e.Wait(t); status != 143 {
				t.Errorf("status %d, want 143", status)
			}
			for _, said := range []string{"[0] has left", "[1] has left"} {
				e.Expect(t, said)
			}
			if name == "sh" {
				e.Expect(t, "[0] wrapper went on", "[1] wrapper went on")
			}
		})
	}
}

// A signal that arrives twice counts once. timeout and sudo, for example, pass a signal on that
// elrun also gets from the terminal.
func TestSignalTwice(t *testing.T) {
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		e := start(t, "train", 2)
		e.expectRanks(t, 2)
		e.Signal(t, syscall.SIGTERM)
		if second != syscall.SIGTERM { // of two pending signals the kernel delivers the lower number first
			e.Expect(t, "passed on")
		}
		e.Signal(t, second)
		if status := e.Wait(t); status != 143 {
			t.Errorf("status %d, want 143", status)
		}
		e.Expect(t, "[0] has left", "[1] has left")
	}
}

// pending reports whether a signal is pending for a process.
func pending(t *testing.T, pid int, sig syscall.Signal) bool {
	t.Helper()
	mask, err := strconv.ParseUint(process.StatusField(pid, "ShdPnd"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask&(1<<(sig-1)) != 0
}

// elrun ignores the signals that were ignored when it was started, as with nohup. Its peers can
// still be asked to leave.
func TestIgnoredSignals(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			e := prepare(t, "train")
			e.begin(t, exec.Command("sh", append([]string{"-c", `trap "" ` + name + `; exec "$0" "$@"`, process.Elrun()},
				append(e.commandLine(t, 2), process.Self(t))...)...))
			e.expectRanks(t, 2)
			e.Signal(t, sig)
			process.Until(t, "the signal to be delivered", func() bool { return !pending(t, e.PID(), sig) })
			e.Signal(t, syscall.SIGTERM)
			if status := e.Wait(t); status != 143 {
				t.Errorf("status %d, want 143: SIGTERM was the first that counts", status)
			}
			e.Expect(t, "[0] has left", "[1] has left")
		})
	}
}

// If standard output is on a full disk, the job continues to its end. elrun then fails because it
// could not write the result.
func TestFullOutput(t *testing.T) {
	log := filepath.Join(t.TempDir(), "events")
	e := prepare(t, "steps")
	e.begin(t, exec.Command("sh", append([]string{"-c", `exec "$0" "$@" >/dev/full`, process.Elrun()},
		append(e.commandLine(t, 2, "--events", log), process.Self(t))...)...))
	if status := e.Wait(t); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	e.Expect(t, "standard output: no space left on device", "the result could not be written", "done steps=20 peers=2 sha256=abcd")
	if b, err := os.ReadFile(log); err != nil || bytes.Count(b, []byte(`"event":"step"`)) != 40 {
		t.Errorf("the event log has not all: %v", err)
	}
}

// inNamespace runs elrun in namespaces of its own.
func inNamespace(t *testing.T, flags []string, args ...string) (out string, status int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make namespaces")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", slices.Concat(flags, []string{process.Elrun()}, args)...)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// Peers that cannot reach each other are not started.
func TestLoopbackDown(t *testing.T) {
	out, status := inNamespace(t, []string{"--net"}, "-n", "2", "true")
	if status != 1 || !strings.Contains(out, "ip link set lo up") {
		t.Errorf("status %d, %q", status, out)
	}
}

// As the first process of a container, elrun reaps orphaned processes.
func TestFirstProcess(t *testing.T) {
	script := `(sh -c 'echo started' &); (sleep 0.1 &); (sleep 0.1 &); n=1
		while [ $n != 0 ]; do sleep 0.5; n=$(cat /proc/[0-9]*/stat | grep -c ') Z 1 '); done; echo zombies=$n`
	out, status := inNamespace(t, []string{"--pid", "--fork", "--mount-proc"}, "-n", "1", "sh", "-c", script)
	if status != 0 || !strings.Contains(out, "[0] zombies=0\n") {
		t.Errorf("status %d, %q", status, out)
	}
	if out, status := inNamespace(t, []string{"--pid", "--fork", "--mount-proc"}, "-n", "3", "sh", "-c", "exit 7"); status != 1 ||
		strings.Count(out, "exited with status 7") != strings.Count(out, "\n") {
		t.Errorf("the status of a child was lost: %d, %q", status, out)
	}
}

// Ctrl-Z stops the whole job, and fg continues it. Ctrl-S stops only the output on the terminal.
func TestTerminalKeys(t *testing.T) {
	e := prepare(t, "train")
	log := filepath.Join(t.TempDir(), "events")
	cmd := exec.Command("bash", append([]string{"-c", `set -m; "$0" "$@"; echo "stopped with $?"; read line; fg >/dev/null; echo "ended with $?"`,
		process.Elrun()}, append(e.commandLine(t, 3, "--events", log), process.Self(t))...)...)
	screen := onTerminal(t, cmd)
	e.begin(t, cmd)
	go screen.watch()
	shows := func(text string) {
		t.Helper()
		process.Until(t, text, func() bool { return strings.Contains(screen.out.String(), text) })
	}
	shows("session epoch=")
	screen.press(t, "\x13") // Ctrl-S
	events := func() int {
		b, _ := os.ReadFile(log)
		return bytes.Count(b, []byte("\n"))
	}
	before := events()
	process.Until(t, "more events", func() bool { return events() > before+100 })
	screen.press(t, "\x11\x1a") // Ctrl-Q, Ctrl-Z
	shows("stopped with 147")   // 128 + SIGSTOP
	process.Until(t, "all to be stopped", func() bool {
		return !slices.ContainsFunc(e.peers(t), func(pid int) bool { return process.State(pid) != "T" && strings.Contains(process.Program(pid), "e2e") })
	})
	screen.press(t, "\n")
	before = events()
	process.Until(t, "more events", func() bool { return events() > before+100 })
	e.end(t)
	shows("done steps=")
	shows("ended with 0")
	if text := screen.out.String(); strings.Contains(text, "lost") || strings.Contains(text, "killing") {
		t.Errorf("the screen shows:\n%s", text)
	}
	e.Wait(t)
}
