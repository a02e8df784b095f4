package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// wordVariable makes the test binary a program that says hello, see TestMain.
const wordVariable = "LAUNCH_TEST_WORD"

// watchedProcess is a process on this host whose program says hello.
type watchedProcess struct {
	*proc.Local
	notices chan notice
	con     *say.Console
	out     *sink.Buffer
	done    chan struct{} // closed when watch has returned
}

// startWatched starts a shell script as a peer, in which "$0" is a program that says hello by the ID in its argument.
func startWatched(t *testing.T, script string) watchedProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := watchedProcess{notices: make(chan notice), out: new(sink.Buffer), done: make(chan struct{})}
	p.con = say.NewConsole(p.out, p.out, nil, false)
	f := newFeed(0, "", p.con, p.notices, nil)
	if p.Local, err = proc.StartLocal(0, 1, exec.Command("sh", "-c", script, self), false, f, nil); err != nil {
		t.Fatal(err)
	}
	p.Words = new(shm.WordWatch)
	go func() {
		defer close(p.done)
		p.Watch()
	}()
	t.Cleanup(func() {
		p.Signal(syscall.SIGKILL)
		for n := (notice{}); n.exit == nil; { // after a failure
			select {
			case n = <-p.notices:
			case <-p.done:
				n.exit = new(spec.Exit)
			}
		}
		_ = p.output()
	})
	return p
}

// output returns what the process has printed, once it has ended.
func (w watchedProcess) output() string {
	<-w.done
	_ = w.con.Close(context.Background(), "")
	return w.out.String()
}

// next returns the next notice of the process.
func (w watchedProcess) next(t *testing.T) notice {
	t.Helper()
	select {
	case n := <-w.notices:
		return n
	case <-time.After(5 * time.Minute):
		t.Fatal("no notice")
		return notice{}
	}
}

// hello waits for the hello of a program and answers it. It returns the process of the program.
func (w watchedProcess) hello(t *testing.T, id elastic.ID) (pid int) {
	t.Helper()
	n := w.next(t)
	if n.msg == nil || n.msg.Hello == nil || n.msg.Hello.ID != id {
		t.Fatalf("notice %+v, want the hello of %s", n, id)
	}
	w.Send(wire.Message{Start: &wire.StartOrder{}})
	return n.pid
}

// ends kills the process, and waits for the notice of its end, which must be the next one.
func (w watchedProcess) ends(t *testing.T) {
	t.Helper()
	w.Signal(syscall.SIGKILL)
	if n := w.next(t); n.exit == nil || n.exit.Signal != syscall.SIGKILL {
		t.Errorf("notice %+v, want the end by this signal", n)
	}
}

// The launcher learns of the end of a program while the process of the program, or a wrapper of it, runs on: the program was killed,
// or it has begun another program. A further program of the wrapper is watched by its own ID.
func TestWordOfWrappedPrograms(t *testing.T) {
	skipUnwatched(t)
	p := startWatched(t, "export "+wordVariable+`=wait; "$0" one; "$0" two; `+wordVariable+`=exec exec "$0" three`)
	for _, id := range []elastic.ID{"one", "two"} {
		if err := syscall.Kill(p.hello(t, id), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if n := p.next(t); n.dying != id {
			t.Errorf("notice %+v, want the end of %s", n, id)
		}
	}
	pid := p.hello(t, "three")
	if n := p.next(t); n.dying != "three" || pid != p.Cmd.Process.Pid {
		t.Errorf("notice %+v of process %d", n, pid)
	}
	p.ends(t)
	if got := p.output(); !strings.Contains(got, "watched true\n") { // the others may be killed before they say so
		t.Errorf("the programs say %q", got)
	}
}

// Of a program that has closed its connection in order, only the end of the process is reported; and of one without a word, or where
// the launcher cannot watch it.
func TestWithoutWord(t *testing.T) {
	skipUnwatched(t)
	p := startWatched(t, wordVariable+`=close "$0" one; echo '{"hello":{"id":"two"}}' >&3; exec 3>&-; sleep 300`)
	p.hello(t, "one")
	if !p.Watched.Load() {
		t.Error("a program with a word is not watched")
	}
	p.hello(t, "two")
	if p.Watched.Load() {
		t.Error("a program without a word is watched")
	}
	p.ends(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p = startWatched(t, wordVariable+`=wait "$0" three; sleep 300`)
	if err := syscall.Kill(p.hello(t, "three"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.ends(t)
	if got := p.output(); strings.Contains(got, "watched true") {
		t.Errorf("the program says %q", got)
	}
}

// skipUnwatched skips a test where this process cannot watch words.
func skipUnwatched(t *testing.T) {
	t.Helper()
	_, _, failed := unix.Syscall(unix.SYS_FUTEX_WAITV, 0, 0, 0)
	if !errors.Is(failed, unix.EINVAL) || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("the kernel cannot wait for several words, or there is one processor")
	}
}
