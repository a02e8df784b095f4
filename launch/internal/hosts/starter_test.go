package hosts

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The command contains the host and ends with the script. The environment of srun lacks the
// settings of the Slurm job for its tasks.
func TestStarterCommand(t *testing.T) {
	flags := []string{"SLURM_NTASKS_PER_NODE", "SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_EXPORT_ENV", "SRUN_CPUS_PER_TASK"}
	others := []string{"SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_HET_SIZE", "SLURMD_NODENAME", "SLURMX"}
	for _, name := range append(flags, others...) {
		t.Setenv(name, "4")
	}
	for want, s := range map[string]starter{
		"ssh -T":             {},
		"ssh -F f -T":        {ssh: []string{"ssh", "-F", "f"}},
		"srun --quiet":       {srun: true},
		"--nodelist=a":       {srun: true},
		" a exec x":          {},
		"--overlap":          {srun: true},
		"ConnectTimeout=8":   {},
		" sh -c exec x":      {srun: true},
		"--cpu-bind=none":    {srun: true},
		"--kill-on-bad-exit": {srun: true},
	} {
		cmd := s.command("a", "exec x", 10*time.Second)
		if got := strings.Join(cmd.Args, " "); !strings.Contains(got, want) {
			t.Errorf("%s, want %s in it", got, want)
		}
		for _, name := range append(flags, others...) {
			if s.srun && slices.Contains(cmd.Env, name+"=4") != slices.Contains(others, name) {
				t.Errorf("srun and %s", name)
			}
		}
	}
}

// Each failure of srun names the host, the output of srun and the remedy.
func TestStarterFailure(t *testing.T) {
	s := starter{srun: true}
	words := &tailBuffer{}
	for want, waited := range map[string]time.Duration{"host a: srun says nothing (exit status 1); does srun": 0, "within 10s": 10 * time.Second} {
		if err := s.failure("a", words, errors.New("exit status 1"), waited); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, _ = words.Write([]byte("srun: error: Unable to create step\n"))
	if err := s.failure("a", words, nil, 0); !strings.Contains(err.Error(), "Unable to create step") {
		t.Error(err)
	}
	if err := (starter{}).failure("a", words, nil, 0); !strings.Contains(err.Error(), "ssh says") {
		t.Error(err)
	}
	// A limit of this host is no missing command.
	_, missing := exec.LookPath("no-such-command")
	for want, err := range map[string]error{"install ssh": missing, "ulimit -n": &os.PathError{Err: syscall.EMFILE}, "ulimit -u": syscall.EAGAIN,
		"fs.file-max": syscall.ENFILE} {
		if got := (starter{}).remedy(err); !strings.Contains(got, want) || strings.Contains(got, "install") != (err == missing) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := s.remedy(missing); !strings.Contains(got, "srun") {
		t.Errorf("srun: %q", got)
	}
	if got := s.remedy(syscall.EINVAL); got != "" {
		t.Errorf("another error: %q", got)
	}
}
