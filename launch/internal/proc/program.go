package proc

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/launch/internal/wire"
)

// FindProgram returns the path of the program, which is looked up in PATH if name has no slash.
// Its errors name the cause and the remedy for the user who typed the name.
func FindProgram(name string) (string, error) {
	if name == "" {
		return "", errors.New("launch: no program given")
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	// LookPath's errors are terse; find out the cause.
	why := err.Error()
	switch {
	case errors.Is(err, syscall.EISDIR) || isDir(name):
		why = "it is a directory"
	case errors.Is(err, fs.ErrPermission):
		why = "it is not executable" + cmp.Or(sourceRemedy(name), "; if it is a program, chmod +x it")
	case strings.Contains(name, "/"):
		why = "no such file"
	case errors.Is(err, exec.ErrNotFound):
		why = "not found in PATH"
		if _, err := os.Stat(name); err == nil {
			why += cmp.Or(sourceRemedy(name), "; for the file in this directory write ./"+name)
		}
	}
	return "", fmt.Errorf("launch: cannot run %q: %s", name, why)
}

// sourceRemedy returns how to run a file with the source of a program; "" for other files.
func sourceRemedy(name string) string {
	switch base, ext := strings.TrimSuffix(name, filepath.Ext(name)), filepath.Ext(name); ext {
	case ".go":
		return fmt.Sprintf("; build it first: go build -o %s %s", base, name)
	case ".py":
		return "; run it by its interpreter: elrun run -- python3 " + name
	}
	return ""
}

// isDir reports whether name contains a slash and is a directory.
func isDir(name string) bool {
	info, err := os.Stat(name)
	return strings.Contains(name, "/") && err == nil && info.IsDir()
}

// StartError returns err, the error of starting the existing file name, and adds the cause if the
// file is not a program for this machine, and the remedy for a limit that was reached.
func StartError(name string, err error) error {
	if errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("launch: cannot run %q: neither a program for this machine nor a script with #! (%w)%s", name, err, sourceRemedy(name))
	}
	if remedy := LimitRemedy(err); remedy != "" {
		return fmt.Errorf("%w%s", err, remedy)
	}
	return err
}

// ChildEnvironment returns base with the variables of a peer. here is the number of peers on this
// host. It does not change base.
func ChildEnvironment(base []string, e wire.Environment, here int) []string {
	return BoundProcessors(append(append([]string{}, base...), e.List()...), here)
}

// BoundProcessors adds GOMAXPROCS and OMP_NUM_THREADS for a peer, unless they are set. peers is the number
// of peers on this host. Without this bound every peer would run as many threads as there are cores
// (oversubscription). OMP_NUM_THREADS is for peers in other languages, whose numeric libraries obey it.
func BoundProcessors(env []string, peers int) []string {
	threads := strconv.Itoa(max(1, cores.Count()/peers))
	for _, name := range []string{"GOMAXPROCS=", "OMP_NUM_THREADS="} {
		// A value that the user has set takes precedence.
		if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name) }) {
			env = append(env, name+threads)
		}
	}
	return env
}

const LookPeriod = time.Second // interval of the looks whether a process is stopped

// LimitRemedy returns what to do about a limit of this host that the start of a process has
// reached; "" for other errors.
func LimitRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return ": raise this user's limit of open files (ulimit -n)"
	case errors.Is(err, syscall.ENFILE):
		return ": end programs here, or raise the system's limit of open files (fs.file-max)"
	case errors.Is(err, syscall.EAGAIN):
		return ": raise this user's limit of processes (ulimit -u), or that of the container"
	}
	return ""
}

// HashFile returns the SHA-256 of a file in hexadecimal.
func HashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
