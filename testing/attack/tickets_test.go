package attack

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// stranger starts a host that has not shown a ticket to any member.
func stranger(t *testing.T, job string) *p2p.Host {
	t.Helper()
	h, err := p2p.Listen(t.Context(), p2p.Config{Job: job, ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// show shows credential c to the member at the first address of ticket k, and returns the member's
// error.
func show(t *testing.T, h *p2p.Host, k ticket.Ticket, c ticket.Credential) error {
	t.Helper()
	m, err := h.Identify(t.Context(), k.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	return h.Prove(t.Context(), m, c)
}

// Members refuse credentials of tickets that no member has issued, that belong to another job, or
// that are no longer valid, and credentials of another host. A host that is in no view cannot issue
// a valid ticket.
func TestTicketsThatAreNoGood(t *testing.T) {
	j := startJob(t, 3)
	good := j.ticket(t)
	minted := good
	minted.Seed[0] ^= 1
	victim, thief := stranger(t, good.Job), stranger(t, good.Job)
	for name, test := range map[string]struct {
		shown func(h *p2p.Host) ticket.Credential
		want  error
	}{
		"minted":   {func(h *p2p.Host) ticket.Credential { return minted.Credential(string(h.ID())) }, ticket.ErrUnknown},
		"replayed": {func(*p2p.Host) ticket.Credential { return good.Credential(string(victim.ID())) }, ticket.ErrUnknown},
		"own key": {func(h *p2p.Host) ticket.Credential {
			return ownKey(h).Credential(good.Job, good.Identity, string(h.ID()))
		}, ticket.ErrUnknown},
		"nothing": {func(*p2p.Host) ticket.Credential { return ticket.Credential{} }, ticket.ErrOtherJob},
		"another job": {func(h *p2p.Host) ticket.Credential {
			return good.Signer().Credential("other", good.Identity, string(h.ID()))
		}, ticket.ErrOtherJob},
		"job before": {func(h *p2p.Host) ticket.Credential {
			return good.Signer().Credential(good.Job, ticket.Identity{1}, string(h.ID()))
		}, ticket.ErrEnded},
	} {
		if err := show(t, thief, good, test.shown(thief)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	expired := j.ticket(t, "--valid", "1s")
	process.Until(t, "the ticket to expire", func() bool { return time.Now().After(expired.Expiry.Add(time.Second)) })
	if err := show(t, thief, expired, expired.Credential(string(thief.ID()))); !errors.Is(err, ticket.ErrExpired) {
		t.Errorf("expired: %v", err)
	}
	revoked := j.ticket(t)
	if _, says, status := process.Command(t, "ticket", "revoke", j.Name, revoked.String()); status != 0 {
		t.Fatal(says)
	}
	j.Until(t, "all to know", func() bool {
		return errors.Is(show(t, thief, revoked, revoked.Credential(string(thief.ID()))), ticket.ErrRevoked)
	})
	if err := show(t, victim, good, good.Credential(string(victim.ID()))); err != nil {
		t.Errorf("the good one: %v", err)
	}
	j.finish(t)
}

// ownKey returns a signer with a host's own key. The host is not a member.
func ownKey(h *p2p.Host) ticket.Signer {
	return ticket.Signer{ID: string(h.ID()), Sign: h.Endpoint(elastic.Member{}).Keys.Sign}
}

// join starts an elrun with one peer, which joins by a ticket.
func (j *job) join(t *testing.T, k ticket.Ticket) *process.Process {
	t.Helper()
	cmd := exec.Command(process.Elrun(), "join", k.String(), "-n", "1", "--listen", "local", process.Self(t))
	cmd.Env = append(os.Environ(), stepsVariable+"=200", stopVariable+"="+j.stop)
	return j.Start(t, cmd)
}

// A ticket for one peer admits one peer. When this peer is kicked, the members put it out at once,
// and revoke all tickets by which it could return. Its elrun reports this and does not restart the
// peer.
func TestUsedUpAndKicked(t *testing.T) {
	j := startJob(t, 3)
	k := j.ticket(t, "--uses", "1")
	first := j.join(t, k)
	j.Until(t, "the newcomer to train", func() bool { return strings.Count(j.Out.String(), "size=4") == 3 })
	second := j.join(t, k)
	if status := second.Wait(t); status != 1 || !strings.Contains(second.Err.String(), "ticket used up") {
		t.Errorf("the second: status %d", status)
	}
	begun := time.Now()
	text, says, status := process.Command(t, "kick", j.Name, j.peerOf(t, first))
	if status != 0 || !strings.Contains(text, "kicked ") {
		t.Fatalf("status %d: %s", status, says)
	}
	j.Until(t, "the view without it", func() bool { return j.Says("has left (kicked)") })
	t.Logf("out after %v", time.Since(begun))
	if status := first.Wait(t); status != 1 || !strings.Contains(first.Err.String(), "was kicked out of the job") {
		t.Errorf("the kicked: status %d", status)
	}
	third := j.join(t, k)
	if status := third.Wait(t); status != 1 || !strings.Contains(third.Err.String(), "ticket revoked") {
		t.Errorf("by the ticket of the kicked: status %d", status)
	}
	j.end(t)
	if status := j.Status(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// peerOf returns the short ID of the peer of an elrun.
func (j *job) peerOf(t *testing.T, elrun *process.Process) string {
	t.Helper()
	found, err := launch.Find(t.Context(), j.Name)
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	j.Until(t, "the peer to answer", func() bool {
		s, err := found.Status(t.Context())
		if i := slices.IndexFunc(s.Members, func(m launch.MemberStatus) bool { return m.Launcher == elrun.PID() }); err == nil && i >= 0 {
			id = s.Members[i].ID
		}
		return id != ""
	})
	return id
}
