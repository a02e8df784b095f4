//go:build unix && !aix && !solaris

package checkpoint

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTemporary opens a temporary file of another writer, dead or alive. It follows no symbolic
// link, and does not block, for example on a named pipe.
func openTemporary(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// flock takes the exclusive lock (flock) on a file, which lasts until f is closed or the process
// dies. If another process has the lock, flock blocks if wait is set, and otherwise returns
// EWOULDBLOCK. The error wraps errors.ErrUnsupported if the file system has no locks.
func flock(f *os.File, wait bool) error {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil || errors.Is(err, unix.EWOULDBLOCK):
			return err
		}
		return fmt.Errorf("%w: lock %s: %w", errors.ErrUnsupported, f.Name(), err)
	}
}
