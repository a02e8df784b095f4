package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
)

// starter is the command that starts the agents of hosts and carries their standard input and
// output: ssh, or srun within a Slurm job.
type starter struct {
	ssh  []string // the command in place of ssh, with its first arguments; empty for ssh
	srun bool
}

// command returns the command that runs a shell script on a host.
func (s starter) command(host, script string, timeout time.Duration) *exec.Cmd {
	if s.srun {
		return srunCommand(host, script)
	}
	words := s.ssh
	if len(words) == 0 {
		words = []string{"ssh"}
	}
	// ssh has to time out before this process does, because the error of ssh says more about the
	// cause.
	patience := max(1, int(timeout.Seconds()*0.8))
	args := append(slices.Clone(words), "-T", "-o", "BatchMode=yes", "-o", fmt.Sprintf("ConnectTimeout=%d", patience),
		"-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=3", host, script)
	return exec.Command(args[0], args[1:]...)
}

// srunCommand returns the command that runs a script as a step on one host of the Slurm job. The
// step shares the host with other steps, has all of the job's cores there, and does not end when a
// peer fails.
func srunCommand(host, script string) *exec.Cmd {
	cmd := exec.Command("srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist="+host, "--cpu-bind=none", "--kill-on-bad-exit=0", "sh", "-c", script)
	cmd.Env = slices.DeleteFunc(os.Environ(), isSrunFlag)
	return cmd
}

// isSrunFlag reports whether a variable, NAME=VALUE, may be a setting of the job for its tasks, as
// SLURM_TRES_PER_TASK. srun reads such variables as if they were its flags, and new versions of
// Slurm have new ones, so only variables that describe the cluster and the job are kept.
func isSrunFlag(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	if !strings.HasPrefix(name, "SLURM_") && !strings.HasPrefix(name, "SRUN_") {
		return false
	}
	for _, described := range []string{"SLURM_JOB_", "SLURM_JOBID", "SLURM_HET_", "SLURM_ARRAY_", "SLURM_SUBMIT_", "SLURM_CLUSTER", "SLURM_CONF", "SLURM_JWT",
		"SLURM_RESTART_COUNT"} {
		if strings.HasPrefix(name, described) {
			return false
		}
	}
	return true
}

// remedy returns what to do if the command cannot be started; "" if it is not known.
func (s starter) remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EAGAIN):
		return proc.LimitRemedy(err)
	case !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return ""
	case s.srun:
		return ": is the folder of srun in PATH?"
	}
	return ": install ssh, or name another command by --ssh"
}

// failure returns the error for a host on which no agent could be started; for ssh it is sshError.
// waited is the time limit that has passed, or 0.
func (s starter) failure(host string, stderr *tailBuffer, ended error, waited time.Duration) error {
	if !s.srun {
		return sshError(host, stderr, ended, waited)
	}
	said := cmp.Or(stderr.last(), fmt.Sprintf("nothing (%v)", ended))
	if waited > 0 {
		return fmt.Errorf("host %s: srun has started nothing there within %v; its message is %s: is the node busy? --connect-timeout waits longer", host, waited, wire.ClipNote(said))
	}
	return fmt.Errorf("host %s: srun says %s; does srun --overlap -w %s hostname work here?", host, wire.ClipNote(said), host)
}
