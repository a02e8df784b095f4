package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runtimeDir makes a directory, sets XDG_RUNTIME_DIR to it for this test, and returns the
// directory of the sockets.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "run") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	return filepath.Join(dir, "elrun", networkSpace())
}

// A socket on which nobody listens is removed at the next listing, unless its process may be about
// to listen.
func TestStaleSocket(t *testing.T) {
	dir := runtimeDir(t)
	at := SocketName{testJob(t), 3, os.Getpid()}
	l, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil { // leaves the file, as a kill does
		t.Fatal(err)
	}
	path := filepath.Join(dir, at.file())
	for _, c := range []struct {
		age    time.Duration
		listed bool
	}{{-time.Hour, true}, {time.Hour, false}} {
		then := time.Now().Add(-c.age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		names, err := List()
		if _, gone := os.Lstat(path); err != nil || slices.Contains(names, at) != c.listed || errors.Is(gone, os.ErrNotExist) == c.listed {
			t.Errorf("age %v: listed %v, %v, %v", c.age, names, gone, err)
		}
	}
	again, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := List(); err != nil || !slices.Contains(names, at) {
		t.Errorf("got %v, %v", names, err)
	}
	_ = again.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// A young socket of a dead process is not listed: the process was killed just now.
func TestSocketOfTheKilled(t *testing.T) {
	dir := runtimeDir(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	at := SocketName{testJob(t), 3, gone.Process.Pid}
	l, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(time.Hour) // young, however slow this test is
	if err := os.Chtimes(filepath.Join(dir, at.file()), then, then); err != nil {
		t.Fatal(err)
	}
	if names, err := List(); err != nil || slices.Contains(names, at) {
		t.Errorf("listed %v, error %v", names, err)
	}
}

// A directory that others can enter, or that is a link, gets no socket; the next directory is
// used.
func TestDirThatIsNotPrivate(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"mode": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o755)) },
		"link": func(dir string) error { return os.Symlink(os.TempDir(), dir) },
		"file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"owner": func(dir string) error {
			if os.Getuid() != 0 {
				return errors.ErrUnsupported
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := runtimeDir(t)
			if err := spoil(filepath.Dir(dir)); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("to give away a directory needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			at := SocketName{testJob(t), 0, os.Getpid()}
			if l, err := listenIn(dir, at); err == nil || !strings.Contains(err.Error(), filepath.Dir(dir)) {
				t.Errorf("listens at %v, %v", l, err)
			}
			l, err := Listen(at)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if names, err := List(); err != nil || !slices.Contains(names, at) || strings.HasPrefix(l.Addr().String(), dir) {
				t.Errorf("listens at %v, listed %v, %v", l.Addr(), names, err)
			}
		})
	}
}

// TestOtherUser lets another user try to find, reach and replace the sockets of this user.
func TestOtherUser(t *testing.T) {
	if at := os.Getenv("ELRUN_TEST_OTHER"); at != "" {
		intrude(at, os.Getenv("ELRUN_TEST_OPEN"))
		return
	}
	if os.Getuid() != 0 {
		t.Skip("to be another user needs root")
	}
	dir := runtimeDir(t)
	if err := os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	at := SocketName{testJob(t), 0, os.Getpid()}
	c, err := Serve(at, testServices())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	open := exposed(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOtherUser$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = []string{"XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR"), "ELRUN_TEST_OTHER=" + filepath.Join(dir, at.file()),
		"ELRUN_TEST_OPEN=" + open}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"jobs: []", "dial: " + syscall.EACCES.Error(), "take: " + syscall.EACCES.Error(), `answer: ""`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: want %q in\n%s", err, want, out)
		}
	}
}

// exposed serves a control socket in a place that everybody can reach, unlike a peer, to test the
// check of the other user.
func exposed(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "open")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &Control{listener: l, by: testServices()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work.Go(c.accept)
	t.Cleanup(func() { _ = c.Close() })
	return path
}

// intrude carries out the attempts of the other user.
func intrude(private, open string) {
	names, _ := List()
	fmt.Println("jobs:", names)
	_, err := net.Dial("unix", private)
	fmt.Println("dial:", errors.Unwrap(errors.Unwrap(err)))
	_, err = net.Listen("unix", private+"0")
	fmt.Println("take:", errors.Unwrap(errors.Unwrap(err)))
	conn, err := net.Dial("unix", open)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = conn.Write([]byte("{\"request\":\"status\"}\n")) // may fail: the peer hangs up
	b, _ := io.ReadAll(conn)
	fmt.Printf("answer: %q\n", b)
	_ = conn.Close()
}
