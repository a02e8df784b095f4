package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/elrun/elrun/internal/cores"
)

// findProgram returns the path of the program, from PATH where name has no slash. Its
// errors are for the user who typed the name.
func findProgram(name string) (string, error) {
	if name == "" {
		return "", errors.New("launch: no program given")
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	why := err.Error()
	switch {
	case errors.Is(err, syscall.EISDIR) || isDir(name):
		why = "it is a directory"
	case errors.Is(err, fs.ErrPermission):
		why = "it is not executable"
	case strings.Contains(name, "/"):
		why = "no such file"
	case errors.Is(err, exec.ErrNotFound):
		why = "not found in PATH"
		if _, err := os.Stat(name); err == nil {
			why += "; for the file in this directory write ./" + name
		}
	}
	return "", fmt.Errorf("launch: cannot run %q: %s", name, why)
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return strings.Contains(name, "/") && err == nil && info.IsDir()
}

// startError words what the system said when it was to run an existing file.
func startError(name string, err error) error {
	if errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("launch: cannot run %q: neither a program for this machine nor a script with #! (%w)", name, err)
	}
	return err
}

// childEnvironment adds to base what a peer needs, one of so many on this host.
func childEnvironment(base []string, e environment, here int) []string {
	return boundProcessors(append(append([]string{}, base...), e.list()...), here)
}

// boundProcessors adds the number of processors for a peer, one of so many on this host,
// unless it is set. Without a bound every peer would run as many threads as there are cores,
// which makes them fight for these.
func boundProcessors(env []string, peers int) []string {
	for _, v := range env {
		if strings.HasPrefix(v, "GOMAXPROCS=") {
			return env
		}
	}
	return append(env, "GOMAXPROCS="+strconv.Itoa(max(1, cores.Count()/peers)))
}
