package launch

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
)

// The command contains the host and ends with the script. The environment of srun lacks the
// settings of the Slurm job for its tasks.
func TestStarterCommand(t *testing.T) {
	t.Setenv("SLURM_NTASKS_PER_NODE", "4")
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
		if s.srun && slices.Contains(cmd.Env, "SLURM_NTASKS_PER_NODE=4") {
			t.Error("srun gets the number of tasks")
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
	if !strings.Contains(s.missing(), "srun") || !strings.Contains(starter{}.missing(), "ssh") {
		t.Error("remedies")
	}
}

// Of several launchers the one whose peer has rank 0 reports the progress.
func TestLeads(t *testing.T) {
	former, joiner := met(t, 1), newRendezvous(1, startOrder{Launcher: "other"}, true)
	ours, theirs := elastic.Member{ID: peerID(0), Launcher: "launcher"}, elastic.Member{ID: peerID(1), Launcher: "other"}
	if !former.leads() || joiner.leads() {
		t.Error("before a view of both")
	}
	for i, members := range [][]elastic.Member{{ours, theirs}, {theirs, ours}, {theirs}} {
		for _, r := range []*rendezvous{former, joiner} {
			r.learn(known{Epoch: uint64(i) + 2, Members: members})
		}
		if former.leads() != (i == 0) || joiner.leads() != (i > 0) {
			t.Errorf("view %d", i)
		}
	}
}
