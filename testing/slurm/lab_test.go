package slurm

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// lab is a cluster of three hosts.
type lab struct {
	hosts []*host
	dir   string // folder that all hosts share
	alone string // SHA-256 of the result of a single, undisturbed peer
}

// configuration is slurm.conf: with munge, without accounting and cgroups. Timeouts are short,
// except KillWait, the time that processes have to end after a signal.
const configuration = `ClusterName=lab
SlurmctldHost=%[1]s
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/slurmd-%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
SlurmdTimeout=15
SlurmctldTimeout=15
KillWait=120
ReturnToService=2
NodeName=%[3]s CPUs=4 RealMemory=100 State=UNKNOWN
PartitionName=main Nodes=%[3]s Default=YES MaxTime=INFINITE State=UP
`

// newLab starts a cluster, which ends with the test.
func newLab(t *testing.T) *lab {
	t.Helper()
	need(t)
	l := &lab{dir: t.TempDir(), alone: alone(t)}
	names, table := []string{"n1", "n2", "n3"}, "127.0.0.1 localhost\n"
	addr := func(i int) string { return fmt.Sprintf("10.79.0.%d", i+1) }
	for i, n := range names {
		table += addr(i) + " " + n + "\n"
	}
	key := make([]byte, 128)
	_, _ = rand.Read(key) // never fails
	l.write(t, "hosts", table, 0o644)
	l.write(t, "munge.key", string(key), 0o600)
	l.write(t, "slurm.conf", fmt.Sprintf(configuration, names[0], l.dir, "n[1-3]"), 0o644)
	l.write(t, "cgroup.conf", "CgroupPlugin=cgroup/v1\n", 0o644) // Slurm reads this file even if it is not used
	l.write(t, "train", "#!/bin/sh\nexec "+process.Self(t)+" "+playWord+"\n", 0o755)
	if err := os.Symlink(process.Elrun(), filepath.Join(l.dir, "elrun")); err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		l.hosts = append(l.hosts, newHost(t, n, addr(i), l.dir))
	}
	connect(t, l.hosts)
	for _, h := range l.hosts {
		h.run(t, "munged", "--force", "--key-file="+l.path("munge.key"), "--socket=/run/munge/munge.socket.2",
			"--pid-file=/run/munge/pid", "--seed-file=/run/munge/seed", "--log-file=/run/munge/log")
	}
	l.hosts[0].run(t, "slurmctld", "-c")
	for _, h := range l.hosts {
		h.run(t, "slurmd")
	}
	t.Cleanup(func() { l.show(t) })
	l.idle(t)
	return l
}

// path returns the path of a file of the lab.
func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// write writes a file of the lab.
func (l *lab) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// idle waits until all hosts accept jobs.
func (l *lab) idle(t *testing.T) {
	t.Helper()
	process.Until(t, "three idle hosts", func() bool {
		out, _ := l.hosts[0].on("sinfo", "-h", "-N", "-o", "%T").Output() // fails while slurmctld does not answer
		return strings.Count(string(out), "idle\n") == len(l.hosts)
	})
}

// slurm runs a command of Slurm.
func (l *lab) slurm(t *testing.T, args ...string) string {
	t.Helper()
	return l.hosts[0].run(t, args...)
}

// show logs Slurm's own logs if the test has failed.
func (l *lab) show(t *testing.T) {
	if !t.Failed() {
		return
	}
	logs, _ := filepath.Glob(l.path("slurm*.log")) // fails only for an invalid pattern
	for _, path := range logs {
		b, err := os.ReadFile(path)
		t.Logf("%s (%v):\n%s", path, err, process.Tail(string(b), 5000))
	}
}

// need skips the test if this machine cannot run the lab. In CI it fails the test instead.
func need(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "namespaces need root")
	}
	for tool, pkg := range map[string]string{"ip": "iproute2", "nsenter": "util-linux", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"} {
		_, err := exec.LookPath(tool)
		if _, there := os.Stat("/usr/sbin/" + tool); err != nil && there != nil {
			missing(t, fmt.Sprintf("no %s: install it (Debian: apt-get install %s)", tool, pkg))
		}
	}
	if out, err := exec.Command("unshare", "--net", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("no namespace can be made: %v: %s", err, out))
	}
}

// missing skips the test. In CI it fails the test instead.
func missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
