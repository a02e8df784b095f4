package hosts

import (
	"fmt"
	"strings"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// sshFailure is a known failure of ssh, or of the shell that it starts. ssh exits with 255 for all
// of its own failures, so only the text on standard error distinguishes them.
type sshFailure struct {
	sign string // part of the text on standard error
	// remedy is a text with the cause and the remedy. HOST in it is replaced by the name of the
	// host.
	remedy string
}

// sshFailures returns the known failures. The first sign that is found decides, so special failures
// are in the list before general ones. The signs are messages of OpenSSH, of resolvers and of
// shells.
func sshFailures() []sshFailure {
	return []sshFailure{
		{"Bad configuration option", "ssh cannot read its configuration here: repair ~/.ssh/config (ssh -G HOST shows the mistake)"},
		{"Bad owner or permissions", "~/.ssh/config may be written by others: chmod 600 ~/.ssh/config"},
		{"stdio forwarding failed", "the jump host does not forward connections: allow AllowTcpForwarding there, or another ProxyJump"},
		{"UNPROTECTED PRIVATE KEY", "others can read the private key here: chmod 600 it"},
		{"HOST IDENTIFICATION HAS CHANGED", "its host key is not the one known here: if that is right, ssh-keygen -R HOST, then ssh HOST once"},
		{"Host key verification failed", "its host key is not known here: run ssh HOST once and accept it"},
		{"Too many authentication failures", "it was offered too many keys: name the right one as IdentityFile in ~/.ssh/config, with IdentitiesOnly yes"},
		{"Permission denied (", "it refuses this login: put your public key there (ssh-copy-id HOST), or start an ssh agent here (ssh-add)"},
		{"Could not resolve hostname", "there is no host of this name: check the spelling, or give it a HostName in ~/.ssh/config"},
		{"Connection refused", "nothing listens at its ssh port: start sshd there, or set the Port in ~/.ssh/config"},
		{"No route to host", "the network has no route to it: is it up, and on this network?"},
		{"Network is unreachable", "the network has no route to it: is this host connected?"},
		{"timed out", "it does not answer: is it up, and does a firewall let ssh through?"},
		{"no matching", "its sshd and this ssh have no method in common: update one of them"},
		{"account is currently not available", "the user has no login shell there: give it one, or name another user (USER@HOST)"},
		{"nologin", "it takes no logins now (nologin): wait, or ask who runs it"},
		{"Exec format error", "elrun for this machine does not run there: install it there, and leave out --copy"},
		{"cannot execute binary file", "elrun for this machine does not run there: install it there, and leave out --copy"},
		{"No space left on device", "its disk is full: make room in ~/.cache"},
		{"Disk quota exceeded", "your quota of its disk is used up: make room in ~/.cache"},
		{"Read-only file system", "its home cannot be written: install elrun there, and leave out --copy"},
		{`cannot run "agent"`, "its elrun is older than this one: install the same version, or use --copy"},
		{"kex_exchange_identification", "its sshd turned the connection down: too many at once (MaxStartups), or it bars this host"},
		{"Connection reset", "its sshd turned the connection down: does it bar this host?"},
		{"Connection closed", "its sshd closed the connection: does it bar this user or host? (its log tells)"},
	}
}

// sshError describes why no agent could be started on a host. ended is the error of ssh, stderr
// its output, and waited the time limit if it was exceeded.
func sshError(host string, stderr *tailBuffer, ended error, waited time.Duration) error {
	// A known text explains more than the time limit, and the last line of ssh explains more than
	// its exit status.
	text := stderr.String()
	for _, f := range sshFailures() {
		if strings.Contains(text, f.sign) {
			return fmt.Errorf("host %s: %s", host, strings.ReplaceAll(f.remedy, "HOST", host))
		}
	}
	switch {
	case waited > 0:
		return fmt.Errorf("host %s: no answer within %v: is it up, and does ssh %s true work?", host, waited, host)
	case stderr.last() != "":
		return fmt.Errorf("host %s: ssh says %s; try ssh %s true", host, wire.ClipNote(stderr.last()), host)
	}
	return fmt.Errorf("host %s: ssh ended without a message (%v); try ssh %s true", host, ended, host)
}
