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

// server is an sshd of this user, with a configuration that lets ssh connect to it.
type server struct {
	dir    string
	config string // path of ssh's configuration
	addr   string
	sshd   *process.Process
}

// hostNames returns the host names that the configuration maps to the server.
func hostNames() []string { return []string{"a", "b", "c", "d"} }

// missing skips the test. In CI it fails the test instead.
func missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("ELRUN_CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// findTools returns the path of sshd, which must be called by its full path.
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

// newServer starts an sshd with additional lines of configuration.
func newServer(t *testing.T, lines ...string) *server {
	t.Helper()
	sshd := findTools(t)
	if os.Getuid() == 0 { // as root, sshd needs this folder for its unprivileged process
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

// configure writes ssh's configuration. lines come before the defaults, because ssh uses the first
// value of an option.
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

// ssh returns the value for the flag --ssh.
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

// freeAddress returns an unused address of the loopback interface.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run runs a command and fails the test if it fails.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
