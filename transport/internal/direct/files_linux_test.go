package direct

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// memories returns n files. Each contains its own number.
func memories(t *testing.T, n int) []*os.File {
	t.Helper()
	var all []*os.File
	for i := range n {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "test")
		if _, err := fmt.Fprint(f, i); err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	t.Cleanup(func() { closeAll(all) })
	return all
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Files arrive in order, together with the bytes that were sent with them. Bytes that are sent before and after stay separate.
func TestSendFiles(t *testing.T) {
	keepsFiles(t)
	a, b := connected(t, opened(t), ways()["unix"])
	for _, n := range []int{0, 1, 3, MaxFiles} {
		sent := make(chan error, 1)
		go func() {
			sent <- errors.Join(a.WriteTwo([]byte("before"), nil), a.SendFiles([]byte("files"), memories(t, n)),
				a.WriteTwo([]byte("after"), nil))
		}()
		before, text, after := make([]byte, 6), make([]byte, 5), make([]byte, 5)
		if _, err := io.ReadFull(b, before); err != nil {
			t.Fatal(err)
		}
		files, err := b.ReceiveFiles(text)
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(files)
		if _, err := io.ReadFull(b, after); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if string(before)+string(text)+string(after) != "beforefilesafter" || len(files) != n {
			t.Fatalf("%d files along with %q %q %q, want %d", len(files), before, text, after, n)
		}
		for i, f := range files {
			if got, err := io.ReadAll(io.NewSectionReader(f, 0, 10)); err != nil || string(got) != fmt.Sprint(i) {
				t.Errorf("file %d of %d is %q, %v", i, n, got, err)
			}
			if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("file %d is left to programs that are started, %v", i, err)
			}
		}
	}
}

// Received files that nobody expects are closed.
func TestFilesThatNobodyTakes(t *testing.T) {
	keepsFiles(t)
	a, b := connected(t, opened(t), ways()["unix"])
	before := openFiles()
	if err := a.SendFiles([]byte("hello"), memories(t, 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if n := openFiles(); n != before+2 { // the two files of memories
		t.Errorf("%d files are open, there were %d", n, before)
	}
}

func TestFilesRefused(t *testing.T) {
	keepsFiles(t)
	p := opened(t)
	a, b := connected(t, p, ways()["unix"])
	if err := a.SendFiles([]byte("x"), memories(t, MaxFiles+10)); err == nil {
		t.Error("more files than the system can send")
	}
	if err := a.SendFiles([]byte("half"), memories(t, 1)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := b.ReceiveFiles(make([]byte, 100))
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || len(files) != 1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	closeAll(files)
	c, d := connected(t, p, ways()["plain"])
	if err := c.SendFiles([]byte("x"), nil); err == nil {
		t.Error("sent files over TCP")
	}
	if _, err := d.ReceiveFiles(make([]byte, 1)); err == nil {
		t.Error("received files over TCP")
	}
}

// If this process reaches its limit of open files, the other files are reported as lost.
func TestFilesLost(t *testing.T) {
	keepsFiles(t)
	a, b := connected(t, opened(t), ways()["unix"])
	if err := a.SendFiles([]byte("x"), memories(t, 20)); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: uint64(openFiles() + 10), Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Skip(err)
	}
	files, err := b.ReceiveFiles(make([]byte, 1))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	closeAll(files)
	if !errors.Is(err, errLost) || len(files) == 20 {
		t.Errorf("%d files of 20, %v", len(files), err)
	}
}

// A reader may pause for any time. No socket option ends the connection.
func TestReaderMayPause(t *testing.T) {
	a, b := connected(t, opened(t), ways()["tls"])
	for _, c := range []*Conn{a, b} {
		limit := -1
		err := control(c.sock, func(fd int) (err error) {
			limit, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			return err
		})
		if err != nil || limit != 0 {
			t.Errorf("the connection ends after %d ms without room at the reader, %v", limit, err)
		}
	}
}

// At a Unix socket, a process of another user is refused, even with the right ticket. Such a
// process cannot act as the waiter either.
func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	keepsFiles(t)
	p := opened(t)
	to := target(t, p, "unix")
	ticket := NewTicket()
	w := p.Expect(ticket, nil)
	defer w.Cancel()
	as(t, func() {
		s := sockets(t, to, 1)[0]
		if _, err := s.Write(append(ticket.Number[:], 1)); err != nil {
			t.Log(err) // fails if it is closed already
		}
		ended(t, s)
	})
	p.mu.Lock()
	_, ok := p.expected[ticket.Number]
	p.mu.Unlock()
	if !ok {
		t.Error("another user has used up the ticket")
	}
	var foreign net.Listener
	as(t, func() {
		var err error
		if foreign, err = net.Listen("unix", "@elrun-test-"+t.Name()); err != nil {
			t.Fatal(err)
		}
	})
	defer foreign.Close()
	c, err := Dial(within(t), Target{Network: "unix", Addr: foreign.Addr().String()}, ticket, nil)
	if err == nil || !strings.Contains(err.Error(), "user") {
		t.Errorf("connected with another user: %v, %v", c, err)
	}
}

// as runs f in a thread with another user ID. The thread ends after f.
func as(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		var err error
		defer func() { done <- err }()
		runtime.LockOSThread() // never unlocked, so that no other goroutine gets this thread
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
			err = errno
			return
		}
		f()
	}()
	if err := <-done; errors.Is(err, syscall.EPERM) {
		t.Skip("this root cannot be another user")
	} else if err != nil {
		t.Fatal(err)
	}
}
