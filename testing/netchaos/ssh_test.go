package netchaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// serveSSH starts an sshd on each host except the first. It returns the ssh command with which the
// first host reaches the other hosts by name.
func (l *lab) serveSSH(t *testing.T) (ssh string) {
	t.Helper()
	const sshd = "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		missing(t, "no sshd: install it (Debian: apt-get install openssh-server openssh-client)")
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"id", "host"} {
		command(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key))
	}
	key, err := os.ReadFile(path("host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	config, known := "", ""
	for _, h := range l.hosts[1:] {
		write("sshd_"+h.name, fmt.Sprintf("ListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nUsePAM no\nStrictModes no\nUseDNS no\nPermitRootLogin prohibit-password\n",
			h.addr, path("host"), path("id.pub")))
		p := process.Start(t, on(t, h, nil, sshd, "-D", "-e", "-f", path("sshd_"+h.name)))
		p.Expect(t, "Server listening")
		config += fmt.Sprintf("Host %s\n\tHostName %s\n", h.name, h.addr)
		known += h.addr + " " + string(key)
	}
	write("known_hosts", known)
	write("ssh_config", config+fmt.Sprintf("Host *\n\tUser root\n\tIdentityFile %s\n\tUserKnownHostsFile %s\n", path("id"), path("known_hosts")))
	return "ssh -F " + path("ssh_config")
}

// The launcher runs on one host, and its peers run on three other hosts. One of these three is cut
// off. The peers on the other two continue. The peer that is cut off gives up, and its agent ends
// because the connection to the launcher ends.
func TestCableOfAHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, 4)
	ssh := l.serveSSH(t)
	j := process.NewJob(t)
	log := process.NewLog(t, filepath.Join(folder(t), "events"))
	args := []string{process.Elrun(), "-H", "host1,host2,host3", "--ssh", ssh, "--connect-timeout", process.Limit.String(),
		"--name", j.Name, "--events", log.Path, "--rejoin-timeout", "2s"}
	for _, v := range append(settings{pace: 2e6}.env(), roleVariable+"=train") {
		args = append(args, "-x", v)
	}
	elrun := j.Start(t, on(t, l.hosts[0], nil, append(args, process.Self(t))...))
	members := func(n int) func() bool {
		return func() bool { log.Read(t); return log.Step > 0 && len(log.View.Members) == n }
	}
	elrun.Until(t, "a step of three hosts", members(3))
	for _, want := range []string{"@host1", "@host3"} {
		if hosts := strings.Join(hostsOf(t, j), " "); !strings.Contains(hosts, want[1:]) {
			t.Errorf("peers run on %s", hosts)
		}
	}
	ask := func(args ...string) string {
		return l.hosts[0].inside(t, "", append([]string{process.Elrun()}, args...)...)
	}
	if got := ask("status", "--peers", j.Name); strings.Count(got, "running") != 3 || !strings.Contains(got, "host3") {
		t.Errorf("status on the host of the launcher:\n%s", got)
	}
	if got := ask("ticket", j.Name); !strings.HasPrefix(got, "elrun") {
		t.Errorf("ticket %q", got)
	}
	if got := ask("scale", j.Name, "4"); !strings.Contains(got, "starting peer 3") {
		t.Errorf("scale says %q", got)
	}
	elrun.Until(t, "a fourth peer", members(4))
	if got := ask("scale", j.Name, "3"); !strings.Contains(got, "asking peer 3 to leave") {
		t.Errorf("scale says %q", got)
	}
	elrun.Until(t, "three peers", members(3))
	l.cut(t, []hole{{0, 3}, {3, 0}, {1, 3}, {3, 1}, {2, 3}, {3, 2}})
	elrun.Until(t, "the step after the loss", members(2))
	elrun.Expect(t, "host host3: the connection to it was lost")
	at := log.Read(t).Step
	elrun.Until(t, "further steps", func() bool { return log.Read(t).Step > at+10 })
	elrun.Signal(t, syscall.SIGINT)
	if status := elrun.Wait(t); status != 128+int(syscall.SIGINT) {
		t.Errorf("status %d", status)
	}
	l.heal(t)
	process.Until(t, "the end of all peers", func() bool { return len(j.Peers(t)) == 0 })
	j.CheckGone(t)
}

// hostsOf returns the names of the hosts on which the peers of a job run.
func hostsOf(t *testing.T, j *process.Job) []string {
	t.Helper()
	var out []string
	for _, p := range j.Peers(t) {
		name, err := exec.Command("nsenter", "--uts", "--target", fmt.Sprint(p.PID), "hostname").Output()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(name)))
	}
	return out
}
