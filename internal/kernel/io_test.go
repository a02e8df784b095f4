//go:build unix

package kernel

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"
)

// pipe returns the descriptors of a non-blocking pipe.
func pipe(t *testing.T) (in, out uintptr) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		t.Fatal(os.NewSyscallError("pipe", err))
	}
	for _, fd := range fds {
		t.Cleanup(func() { _ = syscall.Close(fd) }) // a test may have closed it
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(os.NewSyscallError("fcntl", err))
		}
	}
	return uintptr(fds[0]), uintptr(fds[1])
}

// Written bytes can be read. An empty pipe and a full pipe return EAGAIN. A write to a nearly full
// pipe writes only a part.
func TestCalls(t *testing.T) {
	in, out := pipe(t)
	b := make([]byte, 10)
	if n, err := Read(in, b); n != 0 || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("an empty pipe: %d, %v", n, err)
	}
	for _, two := range [][2]string{{"", "abc"}, {"abc", ""}, {"ab", "c"}} {
		if n, err := WriteTwo(out, []byte(two[0]), []byte(two[1])); n != 3 || err != nil {
			t.Errorf("%q: %d, %v", two, n, err)
		}
		if n, err := Read(in, b); n != 3 || err != nil || string(b[:3]) != "abc" {
			t.Errorf("%q came as %q of %d, %v", two, b[:3], n, err)
		}
	}
	all := bytes.Repeat([]byte("0123456789"), 100_000) // more than a pipe holds
	if n, err := WriteTwo(out, all[:5], all[5:]); n <= 5 || n >= len(all) || err != nil {
		t.Errorf("all there is room for: %d, %v", n, err)
	}
	if n, err := WriteTwo(out, all[:5], all); n != 0 || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("a full pipe: %d, %v", n, err)
	}
	got := make([]byte, 1000)
	if n, err := Read(in, got); n != len(got) || err != nil || !bytes.Equal(got, all[:n]) {
		t.Errorf("of much: %d, %v", n, err)
	}
}

// When the writer has closed the pipe, a read returns the end. When the reader has closed it, a write returns an error.
func TestCallsAtTheEnd(t *testing.T) {
	in, out := pipe(t)
	if err := syscall.Close(int(out)); err != nil {
		t.Fatal(err)
	}
	if n, err := Read(in, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if n, err := WriteTwo(out, nil, make([]byte, 1)); n != 0 || !errors.Is(err, syscall.EBADF) {
		t.Errorf("closed: %d, %v", n, err)
	}
	in, out = pipe(t)
	if err := syscall.Close(int(in)); err != nil {
		t.Fatal(err)
	}
	if n, err := WriteTwo(out, []byte("a"), []byte("b")); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("without a reader: %d, %v", n, err)
	}
}
