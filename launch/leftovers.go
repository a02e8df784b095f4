package launch

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lastBytes bounds what is read of a stream after its deadline: more than a pipe or a socket
// holds by default, and an end for one that somebody keeps filling.
const lastBytes = 1 << 20

// leftovers reads a stream, and after its deadline what is there already: who was slow to
// read must not lose what was sent in time.
type leftovers struct {
	stream io.Reader
	read   int // after the deadline
}

// Read implements io.Reader. It ends with os.ErrDeadlineExceeded.
func (l *leftovers) Read(b []byte) (int, error) {
	if l.read == 0 {
		n, err := l.stream.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 0 {
			return n, err
		}
	}
	n, err := readNow(l.stream, b)
	l.read += n
	if err == nil && l.read > lastBytes {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// readNow reads from a file or socket what is there, whatever its deadline.
func readNow(stream io.Reader, b []byte) (n int, err error) {
	conn, ok := stream.(syscall.Conn)
	if !ok {
		return 0, os.ErrDeadlineExceeded
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		for {
			if n, err = syscall.Read(int(fd), b); err != syscall.EINTR {
				return
			}
		}
	})
	switch {
	case controlErr != nil:
		return 0, controlErr
	case err == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case n == 0 || err == syscall.ECONNRESET: // the other end had not read all that it was sent
		return 0, io.EOF
	case err != nil:
		return 0, err
	}
	return n, nil
}
