package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/testing/process"
)

// terminal is a pseudo-terminal. A program runs on it as the leader of a session.
type terminal struct {
	keys *os.File
	out  process.Output // output on the screen
}

// onTerminal makes a new terminal the standard streams of a command.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { _ = keys.Close() })
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return &terminal{keys: keys}
}

// watch reads the output until the terminal is closed.
func (t *terminal) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := t.keys.Read(buf)
		_, _ = t.out.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// press sends keys.
func (x *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// Keys at a terminal go to the peer of rank 0. In the background elrun leaves the terminal alone.
func TestTerminalInput(t *testing.T) {
	for _, script := range []string{`"$0" -n 2 sh -c 'cat; echo ended'`, `set -m; "$0" -n 2 sh -c 'cat; echo ended' & read line; fg`} {
		job := process.NewJob(t)
		cmd := exec.Command("bash", "-c", script, process.Elrun())
		screen := onTerminal(t, cmd)
		elrun := job.Start(t, cmd)
		go screen.watch()
		shows := func(text string) {
			t.Helper()
			process.Until(t, text, func() bool { return strings.Contains(screen.out.String(), text) })
		}
		shows("[1] ended")
		screen.press(t, "for the shell\n")
		screen.press(t, "for the peer\n")
		shows("[0] for the peer")
		screen.press(t, "\x04") // Ctrl-D
		shows("[0] ended")
		if status := elrun.Wait(t); status != 0 {
			t.Errorf("status %d", status)
		}
		if strings.Contains(script, "read") == strings.Contains(screen.out.String(), "[0] for the shell") {
			t.Errorf("the screen shows %q", screen.out.String())
		}
	}
}
