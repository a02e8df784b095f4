package ssh

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// failure is a way in which ssh or a host can fail.
type failure struct {
	lines   []string                       // lines of sshd's configuration
	prepare func(t *testing.T, a *attempt) // causes the failure
	want    string                         // text that the message must have besides the host's name
}

// attempt is one run of elrun -H a.
type attempt struct {
	*server
	host, elrun string
	program     []string
	folder      string // elrun's working folder; "" is the folder of the test
	flags       []string
	timeout     time.Duration // value of --connect-timeout
}

// shadow puts a script named elrun first in the PATH of the hosts.
func (a *attempt) shadow(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "elrun"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.flags = append(a.flags, "--ssh", a.wrapper(t, `export PATH=`+dir+`:$PATH`))
}

// wrapper writes a script that runs ssh, with the shell command before ahead of the host's command.
// It returns the path of the script.
func (a *attempt) wrapper(t *testing.T, before string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wrapped-ssh")
	script := fmt.Sprintf("#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\nexec ssh -F %s \"$1\" '%s;' \"$2\"\n", a.config, before)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// silent listens at a port of the loopback interface and returns the port. It closes each
// connection at once, or keeps the connection and never answers.
func silent(t *testing.T, closes bool) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if closes {
				_ = conn.Close()
			} else {
				t.Cleanup(func() { _ = conn.Close() })
			}
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// script writes a script and returns its path.
func script(t *testing.T, dir, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, "train")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// sshFailures returns the ways in which ssh cannot reach a host.
func sshFailures() map[string]failure {
	return map[string]failure{
		"nothing listens": {prepare: func(t *testing.T, a *attempt) {
			_, port, _ := net.SplitHostPort(freeAddress(t))
			a.configure(t, "Port "+port)
		}, want: "nothing listens at its ssh port"},
		"unknown name":       {prepare: func(_ *testing.T, a *attempt) { a.host = "no-such-host.invalid" }, want: "no host of this name"},
		"host key not known": {prepare: func(t *testing.T, a *attempt) { a.write(t, "known_hosts", "") }, want: "host key is not known"},
		"host key changed": {prepare: func(t *testing.T, a *attempt) {
			host, port, _ := net.SplitHostPort(a.addr)
			a.write(t, "known_hosts", "["+host+"]:"+port+" "+a.read(t, "id.pub"))
		}, want: "not the one known here"},
		"login refused": {prepare: func(t *testing.T, a *attempt) { a.write(t, "authorized_keys", "") }, want: "refuses this login"},
		"too many keys": {lines: []string{"MaxAuthTries 1"}, prepare: func(t *testing.T, a *attempt) {
			other := filepath.Join(a.dir, "other")
			run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other)
			a.configure(t, "IdentityFile "+other)
		}, want: "too many keys"},
		"bad configuration": {prepare: func(t *testing.T, a *attempt) { a.configure(t, "NoSuchOption yes") }, want: "cannot read its configuration"},
		"key of others": {prepare: func(t *testing.T, a *attempt) {
			if err := os.Chmod(filepath.Join(a.dir, "id"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, want: "chmod 600"},
		"no answer": {prepare: func(t *testing.T, a *attempt) {
			a.timeout = 10 * time.Second
			a.configure(t, "Port "+silent(t, false))
		}, want: "does not answer"},
		"closed at once": {prepare: func(t *testing.T, a *attempt) { a.configure(t, "Port "+silent(t, true)) }, want: "turned the connection down"},
		"no forwarding": {lines: []string{"AllowTcpForwarding no"}, prepare: func(t *testing.T, a *attempt) {
			a.configure(t, "Host a", "ProxyCommand ssh -F "+a.config+" -W %h:%p b", "Host *")
		}, want: "does not forward connections"},
		"no common method": {lines: []string{"Ciphers aes256-ctr"}, prepare: func(t *testing.T, a *attempt) { a.configure(t, "Ciphers aes128-ctr") }, want: "no method in common"},
	}
}

// hostFailures returns the ways in which a host that ssh can reach fails.
func hostFailures() map[string]failure {
	return map[string]failure{
		"no elrun": {prepare: func(t *testing.T, a *attempt) {
			a.elrun = filepath.Join(t.TempDir(), "elrun")
			run(t, "cp", process.Elrun(), a.elrun)
			a.flags = append(a.flags, "--ssh", a.wrapper(t, "rm -f "+a.elrun))
		}, want: "no elrun there"},
		"an older elrun": {prepare: func(t *testing.T, a *attempt) {
			a.shadow(t, `echo 'elrun: cannot run "agent": not found in PATH' >&2; exit 1`)
		}, want: "older"},
		"another version": {prepare: func(t *testing.T, a *attempt) {
			a.shadow(t, `echo elrun-agent ready; echo "{\"ready\":{\"protocol\":99,\"cores\":1}}"; cat >/dev/null`)
		}, want: "another version"},
		"a shell that talks for ever": {prepare: func(t *testing.T, a *attempt) { a.shadow(t, "yes") }, want: "prints without end"},
		"a shell that says nothing": {prepare: func(t *testing.T, a *attempt) {
			a.timeout = 10 * time.Second
			a.shadow(t, "cat >/dev/null")
		}, want: "no answer within"},
		"a shell that fails": {prepare: func(t *testing.T, a *attempt) { a.shadow(t, "echo it is broken >&2; exit 3") }, want: "it is broken"},
		"no program":         {prepare: func(_ *testing.T, a *attempt) { a.program = []string{"no-such-program"} }, want: "not found in PATH; --copy"},
		"program not executable": {prepare: func(t *testing.T, a *attempt) {
			a.program = []string{script(t, t.TempDir(), "", 0o600)}
		}, want: "not executable"},
		"another build of the program": {prepare: func(t *testing.T, a *attempt) {
			here, there := t.TempDir(), t.TempDir()
			script(t, here, "exit 0", 0o700)
			script(t, there, "exit 1", 0o700)
			if err := os.Symlink(process.Elrun(), filepath.Join(here, "elrun")); err != nil {
				t.Fatal(err)
			}
			a.flags = append(a.flags, "--dir", there)
			a.folder, a.program = here, []string{"./train"}
		}, want: "differs from the one here"},
		"no working folder": {prepare: func(_ *testing.T, a *attempt) { a.flags = append(a.flags, "--dir", "/no/such/folder") }, want: "no working folder /no/such/folder"},
		"no room for copies": {prepare: func(t *testing.T, a *attempt) {
			a.flags = append(a.flags, "--copy", "--ssh", a.wrapper(t, "export XDG_CACHE_HOME=/dev/null"))
		}, want: "cannot create directory"},
	}
}

// For each failure elrun ends with status 1 and prints one short line that names the host and the
// problem.
func TestFailures(t *testing.T) {
	all := sshFailures()
	maps.Copy(all, hostFailures())
	for name, f := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &attempt{server: newServer(t, f.lines...), host: "a", elrun: process.Elrun(), program: []string{"true"}, timeout: process.Limit}
			f.prepare(t, a)
			args := append([]string{"--ssh", a.ssh(), "-H", a.host, "--connect-timeout", a.timeout.String()}, a.flags...)
			cmd := exec.Command(a.elrun, append(args, a.program...)...)
			cmd.Dir = a.folder
			begun := time.Now()
			p := process.Start(t, cmd)
			status := p.Wait(t)
			said := p.Err.String()
			if status != 1 || strings.Count(said, "\n") != 1 || len(said) > 260 || !strings.HasPrefix(said, "elrun: host "+a.host+": ") || !strings.Contains(said, f.want) {
				t.Errorf("status %d, printed %q, want %q", status, said, f.want)
			}
			t.Logf("%.1f s: %s", time.Since(begun).Seconds(), said)
		})
	}
}

// If some hosts fail, the job runs on the other hosts, unless these have fewer places than
// --min-peers.
func TestSomeHostsWork(t *testing.T) {
	s := newServer(t)
	j := s.start(t, 3, 0, "-H", "a:2,no-such-host.invalid")
	j.finishes(t, 3)
	if said := j.elrun.Err.String(); !strings.Contains(said, "host no-such-host.invalid: there is no host of this name") || !strings.Contains(said, "runs on the other hosts") {
		t.Errorf("printed %q", said)
	}
	j = s.start(t, 3, 0, "-H", "a:2,no-such-host.invalid", "--min-peers", "3")
	if status := j.elrun.Wait(t); status != 1 || !strings.Contains(j.elrun.Err.String(), "--min-peers") {
		t.Errorf("status %d, printed %q", status, j.elrun.Err.String())
	}
	j.gone(t)
}

// --copy copies elrun and the program to a host that lacks these files. The next job uses the same
// copies. An agent that removes old copies keeps the copy of elrun that it runs from.
func TestCopy(t *testing.T) {
	s := newServer(t)
	cache := t.TempDir()
	a := &attempt{server: s}
	ssh := a.wrapper(t, "export XDG_CACHE_HOME="+cache)
	copies := func(pattern string) []string {
		found, err := filepath.Glob(filepath.Join(cache, "elrun", pattern))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for turn := range 3 {
		j := s.start(t, 2, 0, "-H", "a,b", "--copy", "--ssh", ssh)
		j.finishes(t, 2)
		files := append(copies("*/elrun"), copies("*/*.test")...)
		if all := copies("*/*"); len(files) != 2 || len(all) != 2 {
			t.Fatalf("copies %v of %v after job %d", files, all, turn)
		}
		if turn == 1 { // before the last job all copies get old, and its program is missing
			old := time.Now().Add(-365 * 24 * time.Hour)
			for _, dir := range copies("*") {
				if err := os.Chtimes(dir, old, old); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Remove(copies("*/*.test")[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
}
