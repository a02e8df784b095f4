package ssh

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// server is an sshd of this user's own, and a configuration by which ssh finds it.
type server struct {
	dir    string
	config string // of ssh
	addr   string
	sshd   *process.Process
}

// hostNames are the names under which each server is known.
func hostNames() []string { return []string{"a", "b", "c", "d"} }

// missing skips the test. In CI it fails.
func missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// findTools returns the path of sshd, which wants to be called by it.
func findTools(t *testing.T) (sshd string) {
	t.Helper()
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if _, err := os.Stat(path); err == nil {
			sshd = path
		}
	}
	_, err := exec.LookPath("ssh")
	if sshd == "" || err != nil {
		missing(t, "no sshd or ssh: install them (Debian: apt-get install openssh-server openssh-client)")
	}
	return sshd
}

// newServer starts an sshd with further lines of configuration.
func newServer(t *testing.T, lines ...string) *server {
	t.Helper()
	sshd := findTools(t)
	if os.Getuid() == 0 { // sshd then wants the folder for its unprivileged half
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{dir: t.TempDir()}
	s.config = filepath.Join(s.dir, "ssh_config")
	for _, key := range []string{"id", "host"} {
		run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(s.dir, key))
	}
	s.write(t, "authorized_keys", s.read(t, "id.pub"))
	s.addr = freeAddress(t)
	host, port, _ := net.SplitHostPort(s.addr)
	conf := fmt.Sprintf(`ListenAddress %s
Port %s
HostKey %s/host
AuthorizedKeysFile %s/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
UseDNS no
MaxStartups 100
%s
`, host, port, s.dir, s.dir, strings.Join(lines, "\n"))
	s.write(t, "sshd_config", conf)
	s.write(t, "known_hosts", "["+host+"]:"+port+" "+s.read(t, "host.pub"))
	s.configure(t)
	s.sshd = process.Start(t, exec.Command(sshd, "-D", "-e", "-f", filepath.Join(s.dir, "sshd_config")))
	s.sshd.Expect(t, "Server listening")
	return s
}

// configure writes the configuration of ssh. Lines come first, so that they count.
func (s *server) configure(t *testing.T, lines ...string) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(s.addr)
	text := strings.Join(lines, "\n") + fmt.Sprintf(`
Host %s
	HostName %s
	Port %s
Host *
	User %s
	IdentityFile %s/id
	IdentitiesOnly yes
	UserKnownHostsFile %s/known_hosts
	StrictHostKeyChecking yes
`, strings.Join(hostNames(), " "), host, port, me.Username, s.dir, s.dir)
	s.write(t, "ssh_config", text)
}

// ssh is the value of --ssh.
func (s *server) ssh() string { return "ssh -F " + s.config }

// write writes a file of the server.
func (s *server) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read reads a file of the server.
func (s *server) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// freeAddress returns an address of the loopback interface at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run runs a command that has to work.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
