package launch

import (
	"context"
	"errors"
	"io"
	"net"
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
)

// watchedProcess is a process on this host whose program says hello.
type watchedProcess struct {
	*local
	notices chan notice
	con     *console
	out     *buffer
	done    chan struct{} // closed when watch has returned
}

// startWatched starts a shell script as a peer, in which "$0" is a program that says hello by the ID in its argument.
func startWatched(t *testing.T, script string) watchedProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := watchedProcess{notices: make(chan notice), out: new(buffer), done: make(chan struct{})}
	p.con = newConsole(p.out, p.out, nil, false)
	f := newFeed(0, "", p.con, p.notices, nil)
	if p.local, err = startLocal(0, 1, exec.Command("sh", "-c", script, self), false, f, nil); err != nil {
		t.Fatal(err)
	}
	p.words = new(shm.WordWatch)
	go func() {
		defer close(p.done)
		p.watch()
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		for n := (notice{}); n.exit == nil; { // after a failure
			select {
			case n = <-p.notices:
			case <-p.done:
				n.exit = new(Exit)
			}
		}
		_ = p.output()
	})
	return p
}

// output returns what the process has printed, once it has ended.
func (p watchedProcess) output() string {
	<-p.done
	_ = p.con.close(context.Background(), "")
	return p.out.String()
}

// next returns the next notice of the process.
func (p watchedProcess) next(t *testing.T) notice {
	t.Helper()
	select {
	case n := <-p.notices:
		return n
	case <-time.After(5 * time.Minute):
		t.Fatal("no notice")
		return notice{}
	}
}

// hello waits for the hello of a program and answers it. It returns the process of the program.
func (p watchedProcess) hello(t *testing.T, id elastic.ID) (pid int) {
	t.Helper()
	n := p.next(t)
	if n.msg == nil || n.msg.Hello == nil || n.msg.Hello.ID != id {
		t.Fatalf("notice %+v, want the hello of %s", n, id)
	}
	p.send(message{Start: &startOrder{}})
	return n.pid
}

// ends kills the process, and waits for the notice of its end, which must be the next one.
func (p watchedProcess) ends(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGKILL)
	if n := p.next(t); n.exit == nil || n.exit.Signal != syscall.SIGKILL {
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
	if n := p.next(t); n.dying != "three" || pid != p.cmd.Process.Pid {
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
	if !p.watched.Load() {
		t.Error("a program with a word is not watched")
	}
	p.hello(t, "two")
	if p.watched.Load() {
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

// Of the files that come with data, the last one is kept until it is taken, and all others are closed.
func TestFilesOfSenders(t *testing.T) {
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	conn, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := newSenders(ours)
	if err != nil {
		t.Fatal(err)
	}
	var reads []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		reads = append(reads, r)
		c := &wordConn{UnixConn: conn.(*net.UnixConn)}
		c.word.Store(w)
		if n, err := c.Write([]byte("hello\n")); n != 6 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		if n, err := c.Write([]byte("more\n")); n != 5 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		_ = w.Close()
		if got, err := io.ReadAll(io.LimitReader(s, 11)); string(got) != "hello\nmore\n" || err != nil || s.last != os.Getpid() {
			t.Fatalf("%d: read %q from %d, %v", i, got, s.last, err)
		}
	}
	f := s.take()
	if f == nil || s.take() != nil {
		t.Fatalf("took %v, and then another", f)
	}
	if _, err := f.WriteString("last"); err != nil {
		t.Error(err)
	}
	_ = f.Close()
	for i, r := range reads {
		got, err := io.ReadAll(r) // ends when all handles of the other end are closed
		if want := map[bool]string{true: "last"}[i == 2]; string(got) != want || err != nil {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
	s.drop()
}

// skipUnwatched skips a test where this process cannot watch words.
func skipUnwatched(t *testing.T) {
	t.Helper()
	_, _, failed := unix.Syscall(unix.SYS_FUTEX_WAITV, 0, 0, 0)
	if !errors.Is(failed, unix.EINVAL) || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("the kernel cannot wait for several words, or there is one processor")
	}
}
