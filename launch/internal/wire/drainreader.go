package wire

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// maxDrained bounds the bytes that are read from a stream after its deadline. It is more than a
// pipe or a socket buffers by default. It ends the reading of a stream to which a process keeps
// writing.
const maxDrained = 1 << 20

// DrainReader reads a stream until its deadline, and after it only the data that is already
// buffered: a slow reader must not lose data that was sent in time.
type DrainReader struct {
	Stream io.Reader
	read   int // bytes read after the deadline
}

// Read implements io.Reader. Its final error is os.ErrDeadlineExceeded.
func (d *DrainReader) Read(b []byte) (int, error) {
	// Until the deadline reads block. From the first byte read after the deadline on, only buffered
	// data is read.
	if d.read == 0 {
		n, err := d.Stream.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 0 {
			return n, err
		}
	}
	n, err := readNow(d.Stream, b)
	d.read += n
	if err == nil && d.read > maxDrained {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// readNow reads the buffered data of a file or socket without waiting, whatever its deadline. The
// descriptor is in non-blocking mode, so a read of an empty stream returns EAGAIN at once.
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
	case n == 0 || err == syscall.ECONNRESET: // ECONNRESET: the other end closed with unread data
		return 0, io.EOF
	case err != nil:
		return 0, err
	}
	return n, nil
}
