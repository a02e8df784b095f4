package launch

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
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
// peer fails. Settings of the job for its tasks are removed, because they do not fit the agent.
func srunCommand(host, script string) *exec.Cmd {
	cmd := exec.Command("srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist="+host, "--cpu-bind=none", "--kill-on-bad-exit=0", "sh", "-c", script)
	// srun reads these variables as if they were its own flags.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_EXACT", "SLURM_DISTRIBUTION", "SLURM_HOSTFILE"}, name)
	})
	return cmd
}

// missing returns the remedy if the command cannot be run.
func (s starter) missing() string {
	if s.srun {
		return "is the folder of srun in PATH?"
	}
	return "install ssh, or name another command by --ssh"
}

// failure returns the error for a host on which no agent could be started; for ssh it is sshError.
// waited is the time limit that has passed, or 0.
func (s starter) failure(host string, stderr *tailBuffer, ended error, waited time.Duration) error {
	if !s.srun {
		return sshError(host, stderr, ended, waited)
	}
	said := cmp.Or(stderr.last(), fmt.Sprintf("nothing (%v)", ended))
	if waited > 0 {
		return fmt.Errorf("host %s: srun has started nothing there within %v; its message is %s: is the node busy? --connect-timeout waits longer", host, waited, clipNote(said))
	}
	return fmt.Errorf("host %s: srun says %s; does srun --overlap -w %s hostname work here?", host, clipNote(said), host)
}
