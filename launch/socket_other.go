//go:build !linux

package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Without abstract sockets the control sockets are files in a directory that only
// this user may enter, which is all the protection they need. A killed peer leaves
// its file; whoever lists the directory removes it.

// socketDir returns the directory, which it makes first where needed.
func socketDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "elrun-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !ok || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s: want a directory of mode 0700 that belongs to user %d", dir, os.Getuid())
	}
	return dir, nil
}

// path returns the socket's file. Its name uses ':' where String has '/'.
func (n socketName) path() (string, error) {
	dir, err := socketDir()
	return filepath.Join(dir, strings.Replace(n.String(), "/", ":", 1)), err
}

func listenControl(at socketName) (net.Listener, error) {
	path, err := at.path()
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

func dialControl(ctx context.Context, at socketName) (net.Conn, error) {
	path, err := at.path()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// sameUser has nothing to check: nobody else can enter the directory.
func sameUser(net.Conn) error { return nil }

// listControls finds the sockets of this user's peers and removes dead ones.
func listControls() ([]socketName, error) {
	dir, err := socketDir()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []socketName
	for _, f := range files {
		n, err := parseSocketName(strings.Replace(f.Name(), ":", "/", 1))
		if err != nil {
			continue
		}
		if syscall.Kill(n.pid, 0) == syscall.ESRCH {
			_ = os.Remove(filepath.Join(dir, f.Name()))
			continue
		}
		out = append(out, n)
	}
	return out, nil
}
