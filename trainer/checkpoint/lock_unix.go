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

// flock takes a lock (flock) on a file, which lasts until f is closed or the process dies. If
// tryExclusive fails because another process has a lock, the error is EWOULDBLOCK. The error wraps
// errors.ErrUnsupported if the file system has no locks.
func flock(f *os.File, kind lockKind) error {
	how := map[lockKind]int{tryExclusive: unix.LOCK_EX | unix.LOCK_NB, exclusive: unix.LOCK_EX, shared: unix.LOCK_SH}[kind]
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
