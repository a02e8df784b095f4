package launch

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
)

// Control sockets are files in a directory that only this user can enter, one directory for each
// network namespace. A killed process leaves its file behind; listControls removes files of
// sockets on which nobody listens.

const (
	// maxSocketPath is the longest path of a socket that all systems accept, in bytes.
	maxSocketPath = 103
	// youngSocket is the age below which a socket may not be listening yet.
	youngSocket = time.Second
)

// socketDirs returns the possible directories of control sockets, best first. The directory that a
// process uses depends on its environment, so a search has to read all directories.
func socketDirs() []string {
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
func (n socketName) file() string { return strings.Replace(n.String(), "/", ":", 1) }

// listenControl opens the socket in the first directory where this succeeds.
func listenControl(at socketName) (net.Listener, error) {
	var errs []error
	for _, dir := range socketDirs() {
		l, err := listenIn(dir, at)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// listenIn opens the socket in one directory. It retries, because another process that closes the
// last socket may remove the directory meanwhile.
func listenIn(dir string, at socketName) (l net.Listener, err error) {
	path := filepath.Join(dir, at.file())
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path %s is longer than %d bytes: set a shorter XDG_RUNTIME_DIR", path, maxSocketPath)
	}
	for range 3 {
		if err = makePrivate(dir); err != nil {
			return nil, err
		}
		if refuses, young := isDeadSocket(path); refuses && !young {
			_ = os.Remove(path) // left by a process with the same ID
		}
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); !errors.Is(err, os.ErrNotExist) {
			return l, err
		}
	}
	return nil, err
}

// dialControl connects to a socket in any of the directories. If all directories fail, it prefers
// the error of an existing socket to the error of a missing file. The caller checks by sameUser
// which user listens.
func dialControl(ctx context.Context, at socketName) (net.Conn, error) {
	var d net.Dialer
	last := fmt.Errorf("peer %d (pid %d): %w", at.index, at.pid, os.ErrNotExist)
	for _, dir := range socketDirs() {
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

// listControls returns the sockets of this user's peers, sorted, and removes dead ones. It ignores
// directories that are not private.
func listControls() ([]socketName, error) {
	var out []socketName
	for _, dir := range socketDirs() {
		if checkPrivate(dir) != nil {
			continue
		}
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, f := range files {
			n, err := parseSocketName(strings.Replace(f.Name(), ":", "/", 1))
			if err != nil {
				continue
			}
			path := filepath.Join(dir, f.Name())
			switch refuses, young := isDeadSocket(path); {
			case refuses && !young:
				_ = os.Remove(path)
			case refuses && syscall.Kill(n.pid, 0) == syscall.ESRCH:
				// Its peer was killed just now, or is in another PID namespace.
			case n.index >= maxPeers: // the socket of a service, which takes other calls
			default:
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, func(a, b socketName) int {
		return cmp.Or(strings.Compare(a.job, b.job), cmp.Compare(a.index, b.index), cmp.Compare(a.pid, b.pid))
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
