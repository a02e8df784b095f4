package kernel

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Option returns the same value as package unix.
func TestOption(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	want, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Option[unix.TCPInfo](uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err != nil || got != *want {
		t.Errorf("%+v, %v, want %+v", got, err, *want)
	}
	in, _ := pipe(t)
	if _, err := Option[int32](in, unix.SOL_SOCKET, unix.SO_TYPE); !errors.Is(err, syscall.ENOTSOCK) {
		t.Errorf("of a pipe: %v", err)
	}
}
