// Package screen runs commands at a terminal of tmux, so that tests see what a person would see.
//
//	s := screen.New(t, 80, 24, "NO_COLOR=1 elrun top")
//	s.Until("goodput")
//	s.Resize(200, 60)
//	s.Press("q")
//	if status := s.Left(); status != 0 {
//		t.Errorf("status %d", status)
//	}
//
// Without tmux the test is skipped. If ELRUN_CI is set it fails instead.
package screen

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// Screen is a terminal with a command. It is gone at the end of the test.
type Screen struct {
	t   testing.TB
	dir string
}

// New starts a command of a shell at a terminal of a width and a height.
func New(t testing.TB, width, height int, command string) *Screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("ELRUN_CI") != "" {
			t.Fatal("no tmux: install it (Debian: apt-get install tmux)")
		}
		t.Skip("no tmux: install it (Debian: apt-get install tmux)")
	}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "screen-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Screen{t, dir}
	s.watch()
	script := fmt.Sprintf("stty -a >%[1]s/before\n%[2]s\necho $? >%[1]s/status\nstty -a >%[1]s/after\nmv %[1]s/status %[1]s/left\nexec sleep 10000\n", dir, command)
	if err := os.WriteFile(s.path("script"), []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "sh "+s.path("script"))
	return s
}

// watch starts a process that ends the server of tmux, and removes the files, at the end of the test, or when this process
// is killed: then its end of a pipe closes.
func (s *Screen) watch() {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	end := exec.CommandContext(context.Background(), "sh", "-c", `read -r _; tmux -S "$1/socket" kill-server; rm -rf "$1"`, "sh", s.dir)
	end.Stdin, end.SysProcAttr = r, &syscall.SysProcAttr{Setpgid: true}
	if err := end.Start(); err != nil {
		s.t.Fatal(err)
	}
	_ = r.Close()
	s.t.Cleanup(func() {
		_ = w.Close()
		_ = end.Wait() // an error means that the server has not started, or has ended
	})
}

// path returns the path of a file of this screen.
func (s *Screen) path(name string) string { return filepath.Join(s.dir, name) }

// tmux runs a command of tmux and returns its output.
func (s *Screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(context.Background(), "tmux", append([]string{"-u", "-S", s.path("socket")}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Text returns what is in view, with a line end after each line.
func (s *Screen) Text() string {
	s.t.Helper()
	return s.tmux("capture-pane", "-p")
}

// History is Text with the lines above, which are not in view any more.
func (s *Screen) History() string {
	s.t.Helper()
	return s.tmux("capture-pane", "-p", "-S", "-")
}

// Styled is Text with the escape sequences of its styles.
func (s *Screen) Styled() string {
	s.t.Helper()
	return s.tmux("capture-pane", "-p", "-e")
}

// Press presses keys, by their names in tmux.
func (s *Screen) Press(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

// Resize changes the size.
func (s *Screen) Resize(width, height int) {
	s.t.Helper()
	s.tmux("resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height))
}

// Until waits until a text is in view.
func (s *Screen) Until(text string) {
	s.t.Helper()
	if !process.Holds(s.t.Context(), process.Limit, func() bool { return strings.Contains(s.Text(), text) }) {
		s.t.Fatalf("waited %v in vain for %q; the screen shows\n%s", process.Limit, text, s.Text())
	}
}

// Record writes all that the command sends to the terminal from this moment on to a file, whose path it returns.
func (s *Screen) Record() string {
	s.t.Helper()
	s.tmux("pipe-pane", "-O", "exec cat >"+s.path("sent"))
	return s.path("sent")
}

// PID returns the process ID of the command, which is the child of the shell.
func (s *Screen) PID() int {
	s.t.Helper()
	shell := strings.TrimSpace(s.tmux("display-message", "-p", "#{pane_pid}"))
	pid := 0
	process.Until(s.t, "the process of the command", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", shell, shell))
		_, err := fmt.Sscan(string(children), &pid)
		return err == nil
	})
	return pid
}

// Left waits for the end of the command and checks that the terminal is as it was before: its main screen is in view, its cursor is
// shown and its settings are the same. It returns the exit status.
func (s *Screen) Left() int {
	s.t.Helper()
	var status []byte
	process.Until(s.t, "the end of the command", func() bool {
		var err error
		status, err = os.ReadFile(s.path("left"))
		return err == nil
	})
	// tmux may not have read all that the command has sent.
	modes := ""
	if !process.Holds(s.t.Context(), process.Limit, func() bool {
		modes = strings.TrimSpace(s.tmux("display-message", "-p", "alternate screen #{alternate_on}, cursor #{cursor_flag}, mouse #{mouse_any_flag}"))
		return modes == "alternate screen 0, cursor 1, mouse 0"
	}) {
		s.t.Errorf("the terminal has %s", modes)
	}
	before, err := os.ReadFile(s.path("before"))
	if err != nil {
		s.t.Fatal(err)
	}
	after, err := os.ReadFile(s.path("after"))
	if err != nil || withoutSize(string(before)) != withoutSize(string(after)) {
		s.t.Errorf("%v; the settings of the terminal are\n%s, and were\n%s", err, after, before)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(status)))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// withoutSize returns the settings without the size of the terminal, which a test may have changed.
func withoutSize(settings string) string {
	_, rest, _ := strings.Cut(settings, "line = ")
	return rest
}
