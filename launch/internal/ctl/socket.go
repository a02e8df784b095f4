package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Control sockets are files in a directory that only this user can enter, one directory for each
// network namespace. A killed process leaves its file behind; ListSockets removes files of
// sockets on which nobody listens.

const (
	// youngSocket is the age below which a socket may not be listening yet.
	youngSocket = time.Second
	// lockPeriod is how often a locked directory is tried, lockTries times.
	lockPeriod = 10 * time.Millisecond
	lockTries  = 200
)

// SocketDirs returns the possible directories of control sockets, best first. The directory that a
// process uses depends on its environment, so a search has to read all directories.
func SocketDirs() []string {
	user := strconv.Itoa(os.Getuid())
	var all []string
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), filepath.Join("/run/user", user)} {
		if owner, _, err := ownerOf(dir); err == nil && owner == os.Getuid() && filepath.IsAbs(dir) {
			all = append(all, filepath.Join(dir, "elrun"))
		}
	}
	// Use /tmp and not TMPDIR, because TMPDIR may differ between a job and the terminal of its
	// user. Another user can occupy this name in /tmp. Another user cannot occupy the name in the
	// home folder below, but several hosts may share that folder.
	all = append(all, filepath.Join("/tmp", "elrun-"+user))
	home, err := os.UserHomeDir()
	host, err2 := os.Hostname()
	if err == nil && err2 == nil {
		all = append(all, filepath.Join(home, ".elrun-"+host))
	}
	space := networkSpace()
	var out []string
	for _, dir := range all {
		if dir = filepath.Join(filepath.Clean(dir), space); !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// ownerOf returns the owner and the mode of a file. It does not follow symbolic links.
func ownerOf(path string) (uid int, mode os.FileMode, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("the owner of %s is unknown", path)
	}
	return int(s.Uid), info.Mode(), nil
}

// checkPrivate returns an error unless a directory of sockets and its parent are private to this
// user. In a directory of another user the sockets could be replaced.
func checkPrivate(dir string) error {
	for _, d := range []string{filepath.Dir(dir), dir} {
		uid, mode, err := ownerOf(d)
		if err != nil {
			return err
		}
		if !mode.IsDir() || mode.Perm() != 0o700 || uid != os.Getuid() {
			return fmt.Errorf("%s is not a directory of mode 0700 that belongs to user %d; remove it", d, os.Getuid())
		}
	}
	return nil
}

// makePrivate makes a directory of sockets, unless it exists, and checks it.
func makePrivate(dir string) error {
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return checkPrivate(dir)
}

// file returns the name of the socket's file, which is String with ':' in place of '/'.
func (s SocketName) file() string { return strings.Replace(s.String(), "/", ":", 1) }

// Listen opens the socket in the first directory where this succeeds. If another process
// listens under a name without a process ID, the error wraps syscall.EADDRINUSE.
func Listen(at SocketName) (net.Listener, error) {
	var errs []error
	for _, dir := range SocketDirs() {
		l, err := listenIn(dir, at)
		if err == nil || at.PID == 0 && errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// listenIn opens the socket in one directory. It retries, because another process that closes the
// last socket may remove the directory meanwhile.
func listenIn(dir string, at SocketName) (l net.Listener, err error) {
	path := filepath.Join(dir, at.file())
	if len(path) > wire.MaxSocketPath {
		return nil, fmt.Errorf("the path %s is longer than %d bytes: set a shorter XDG_RUNTIME_DIR", path, wire.MaxSocketPath)
	}
	for range 3 {
		if err = makePrivate(dir); err != nil {
			return nil, err
		}
		if l, err = takeOver(dir, path); !errors.Is(err, os.ErrNotExist) {
			return l, err
		}
	}
	return nil, err
}

// takeOver opens the socket at path in dir. It first removes a file there on which nobody listens:
// a process of the same name was killed.
func takeOver(dir, path string) (net.Listener, error) {
	defer lockDir(dir)()
	// Nobody else opens a socket now, so a socket that refuses is not about to listen.
	if refuses, _ := isDeadSocket(path); refuses {
		_ = os.Remove(path)
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// removeDead removes the file of a socket on which nobody listens.
func removeDead(dir, path string) {
	defer lockDir(dir)()
	// Another process may have taken the socket over since the caller looked.
	if refuses, _ := isDeadSocket(path); refuses {
		_ = os.Remove(path)
	}
}

// lockDir locks a directory of sockets until the function that it returns is called. Who opens a
// socket, or removes the file of another process, holds the lock: otherwise one of two processes
// that find the file of a dead socket could remove the new socket of the other. Without locks on its
// file system, or if a process that is stopped holds the lock, the directory is not locked.
func lockDir(dir string) (unlock func()) {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	for range lockTries {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || pause.For(context.Background(), lockPeriod) != nil {
			break
		}
	}
	return func() { _ = d.Close() }
}

// dial connects to a socket in any of the directories. If all directories fail, it prefers
// the error of an existing socket to the error of a missing file. The caller checks by SameUser
// which user listens.
func dial(ctx context.Context, at SocketName) (net.Conn, error) {
	var d net.Dialer
	last := fmt.Errorf("%s: %w", at.owner(), os.ErrNotExist)
	for _, dir := range SocketDirs() {
		// Others could have put a socket of their own into a directory that is not private.
		if checkPrivate(dir) != nil {
			continue
		}
		conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, at.file()))
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			last = err
		}
	}
	return nil, last
}

// List returns the sockets of this user's peers, sorted, and removes dead ones.
func List() ([]SocketName, error) {
	all, err := ListSockets()
	return slices.DeleteFunc(all, SocketName.isLauncher), err
}

// ListSockets returns the sockets of this user's peers and launchers, sorted, and removes dead
// ones. It ignores directories that are not private.
func ListSockets() ([]SocketName, error) {
	var out []SocketName
	for _, dir := range SocketDirs() {
		if checkPrivate(dir) != nil {
			continue
		}
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, f := range files {
			n, err := ParseSocketName(strings.Replace(f.Name(), ":", "/", 1))
			if err != nil {
				continue
			}
			path := filepath.Join(dir, f.Name())
			switch refuses, young := isDeadSocket(path); {
			case refuses && !young:
				removeDead(dir, path)
			case refuses && (n.PID == 0 || syscall.Kill(n.PID, 0) == syscall.ESRCH):
				// Its process was killed just now, or is in another PID namespace.
			case n.Index >= spec.MaxPeers: // the socket of a service, which takes other calls
			default:
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, func(a, b SocketName) int {
		return cmp.Or(strings.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index), cmp.Compare(a.PID, b.PID))
	})
	return slices.Compact(out), nil
}

// isDeadSocket reports whether nobody listens on a socket, and whether the socket is so young that
// its process may be about to listen.
func isDeadSocket(path string) (refuses, young bool) {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return false, false
	}
	info, gone := os.Lstat(path)
	if !errors.Is(err, syscall.ECONNREFUSED) || gone != nil {
		return false, false
	}
	return true, time.Since(info.ModTime()) <= youngSocket
}
