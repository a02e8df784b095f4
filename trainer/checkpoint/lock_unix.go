//go:build unix && !aix && !solaris

package checkpoint

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openLeft opens a file that somebody may have left, without waiting for anything.
func openLeft(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// lock locks a file for as long as it is open here. With wait it waits for one that looks at
// it. errors.ErrUnsupported says that the file system has no locks.
func lock(f *os.File, wait bool) error {
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
