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

// Control sockets are files in a directory that only this user may enter, by network
// namespace: a peer is seen where its network is. A process that is killed leaves its file;
// whoever lists the directory removes those at which nobody listens.

const (
	// maxSocketPath is the longest path that a socket may have on all systems, in bytes.
	maxSocketPath = 103
	// youngSocket is the age up to which a socket may not listen yet.
	youngSocket = time.Second
)

// socketDirs returns where control sockets may be, the best place first. Which of them can
// be used depends on the environment of a process, so whoever lists looks at all.
func socketDirs() []string {
	user := strconv.Itoa(os.Getuid())
	var all []string
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), filepath.Join("/run/user", user)} {
		if owner, _, err := ownerOf(dir); err == nil && owner == os.Getuid() && filepath.IsAbs(dir) {
			all = append(all, filepath.Join(dir, "elrun"))
		}
	}
	// Not in TMPDIR: it differs between a job and the terminal that asks for it. Others can
	// take this name, but not the one below, which several hosts may share.
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

// ownerOf returns whose a file is and its mode; links are not followed.
func ownerOf(path string) (uid int, mode os.FileMode, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("%s: unknown owner", path)
	}
	return int(s.Uid), info.Mode(), nil
}

// checkPrivate reports why a directory of sockets and the one above it are not private.
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

// makePrivate makes a directory of sockets where there is none, and checks it.
func makePrivate(dir string) error {
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return checkPrivate(dir)
}

// file is the name of the socket in its directory. It uses ':' where String has '/'.
func (n socketName) file() string { return strings.Replace(n.String(), "/", ":", 1) }

// listenControl opens the socket in the first directory where that is possible.
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

// listenIn opens the socket in one directory. Whoever has closed the last socket there may
// just have removed it.
func listenIn(dir string, at socketName) (l net.Listener, err error) {
	path := filepath.Join(dir, at.file())
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: longer than %d bytes", path, maxSocketPath)
	}
	for range 3 {
		if err = makePrivate(dir); err != nil {
			return nil, err
		}
		if refuses, young := isDeadSocket(path); refuses && !young {
			_ = os.Remove(path) // of a process that had the same number
		}
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); !errors.Is(err, os.ErrNotExist) {
			return l, err
		}
	}
	return nil, err
}

// dialControl connects with a socket, wherever it is.
func dialControl(ctx context.Context, at socketName) (net.Conn, error) {
	var d net.Dialer
	last := fmt.Errorf("peer %d (pid %d): %w", at.index, at.pid, os.ErrNotExist)
	for _, dir := range socketDirs() {
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

// listControls finds the sockets of this user's peers and removes dead ones. Directories
// that are not private hold none of them.
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
				// Its peer was killed just now, or sees other processes than this one.
			case n.index >= maxPeers: // of a service, which takes other calls
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

// isDeadSocket reports whether nobody listens at a socket, and whether it is so young that
// somebody may be about to.
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
