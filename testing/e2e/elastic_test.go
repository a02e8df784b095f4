package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/transport/ticket"
)

// pid returns the process ID of the peer with a local index, after a restart the ID of the latest
// process.
func (e *elrun) pid(t *testing.T, index int) int {
	t.Helper()
	all := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] joined .*\bpid=(\d+)`, index)).FindAllStringSubmatch(e.Out.String(), -1)
	if len(all) == 0 {
		t.Fatalf("peer %d has not joined", index)
	}
	pid, err := strconv.Atoi(all[len(all)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// hit sends a signal to peers, by their local indices, as fast as it can.
func (e *elrun) hit(t *testing.T, sig syscall.Signal, indices ...int) {
	t.Helper()
	var pids []int
	for _, i := range indices {
		pids = append(pids, e.pid(t, i))
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
}

// expectSize waits until the latest session that a peer has printed has n members.
func (e *elrun) expectSize(t *testing.T, index, n int) {
	t.Helper()
	process.Until(t, fmt.Sprintf("a session of %d members at peer %d", n, index), func() bool {
		all := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] session epoch=\d+ size=(\d+) `, index)).FindAllStringSubmatch(e.Out.String(), -1)
		return len(all) > 0 && all[len(all)-1][1] == strconv.Itoa(n)
	})
}

// expectDone lets the training end, and checks that it ended well.
func (e *elrun) expectDone(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(e.finish, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if status := e.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	if n := strings.Count(e.Out.String(), "\ndone steps="); n != 1 {
		t.Errorf("%d results were printed", n)
	}
}

func TestKillOneOfFive(t *testing.T) {
	for _, victim := range []int{0, 3} {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			e := start(t, "train", 5)
			e.expectSize(t, 1, 5)
			e.expectSize(t, victim, 5)
			pid := e.pid(t, victim)
			e.hit(t, syscall.SIGKILL, victim)
			e.expectSize(t, 1, 4)
			e.expectDone(t)
			e.Expect(t, fmt.Sprintf("peer %d (%s) is lost: it", victim, e.field(t, victim, "id")), "4 peers go on",
				fmt.Sprintf("the job finished, but before its end peer %d (pid %d) was killed", victim, pid))
			if n := strings.Count(e.Err.String(), "is lost"); n != 1 {
				t.Errorf("the loss is reported %d times", n)
			}
		})
	}
}

// One launcher has started all peers, so it notices the death of each of them. Therefore any number
// of survivors may continue.
func TestKillMany(t *testing.T) {
	for name, c := range map[string]struct {
		peers int
		kills [][]int
	}{
		"2 of 4 at once": {4, [][]int{{0, 2}}},
		"1 of 2":         {2, [][]int{{0}}},
		"3 of 4 in turn": {4, [][]int{{0}, {3}, {1}}},
		"3 of 4 at once": {4, [][]int{{0, 1, 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, "train", c.peers)
			for i := range c.peers {
				e.expectSize(t, i, c.peers)
			}
			left := c.peers
			survivor := 2
			if c.peers == 2 || slices.Contains(c.kills[0], 2) {
				survivor = 1
			}
			for _, victims := range c.kills {
				e.hit(t, syscall.SIGKILL, victims...)
				left -= len(victims)
				e.expectSize(t, survivor, left)
			}
			e.expectDone(t)
		})
	}
}

func TestPeerLeaves(t *testing.T) {
	e := start(t, "train", 3)
	e.expectSize(t, 1, 3)
	e.hit(t, syscall.SIGTERM, 1)
	e.Expect(t, "[1] has left at step")
	e.expectSize(t, 0, 2)
	e.expectDone(t)
	e.Expect(t, "has left")
	if strings.Contains(e.Err.String(), "is lost") {
		t.Error("a peer that left is called lost")
	}
}

// A stopped process delays the others until its launcher kills it.
func TestPeerStopped(t *testing.T) {
	e := start(t, "train", 3)
	e.expectSize(t, 1, 3)
	e.hit(t, syscall.SIGSTOP, 1)
	e.expectSize(t, 0, 2)
	e.expectDone(t)
	e.Expect(t, "is stopped and holds up the others: killing it", "is lost")
}

func TestScale(t *testing.T) {
	e := start(t, "train", 2)
	e.expectSize(t, 0, 2)
	scale := func(n, want string) {
		t.Helper()
		stdout, stderr, status := process.Command(t, "scale", e.job.Name, n)
		if status != 0 || stdout != want+"\n" {
			t.Errorf("scale %s: status %d, stdout %q, stderr %q", n, status, stdout, stderr)
		}
	}
	scale("4", "2 local peers become 4: starting peers 2, 3")
	e.expectSize(t, 0, 4)
	stdout, _, _ := process.Command(t, "status", e.job.Name, "--json")
	var s launch.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || len(s.Members) != 4 {
		t.Errorf("%v: %s", err, stdout)
	}
	scale("4", "4 local peers become 4: nothing to do")
	scale("1", "4 local peers become 1: asking peers 3, 2, 1 to leave")
	e.expectSize(t, 0, 1)
	for _, n := range []string{"0", "100000", "-1", "many"} {
		if _, stderr, status := process.Command(t, "scale", e.job.Name, "--", n); status != 2 || stderr == "" {
			t.Errorf("scale %s: status %d, stderr %q", n, status, stderr)
		}
	}
	e.expectDone(t)
}

// A job with fewer peers than --min-peers waits at the start. It begins when a second peer of its
// launcher and a peer of another launcher have joined.
func TestMinPeersFromTheStart(t *testing.T) {
	e := start(t, "train", 1, "--min-peers", "3")
	e.Expect(t, "1 present, 3 needed")
	if _, stderr, status := process.Command(t, "scale", e.job.Name, "2"); status != 0 {
		t.Fatalf("scale: status %d, stderr %q", status, stderr)
	}
	e.Expect(t, "has joined", "; 2 peers of the 3 needed wait for more")
	second := e.join(t, "train", 1, e.issue(t))
	e.expectSize(t, 0, 3)
	second.expectSize(t, 0, 3)
	e.expectDone(t)
}

func TestRestart(t *testing.T) {
	log := t.TempDir() + "/events"
	e := start(t, "train", 2, "--restart", "2", "--events", log)
	e.expectSize(t, 0, 2)
	e.expectSize(t, 1, 2)
	first := e.pid(t, 1)
	e.hit(t, syscall.SIGKILL, 1)
	e.Expect(t, "peer 1 is started again, as a new member (restart 1 of 2)")
	process.Until(t, "the new process", func() bool { return e.pid(t, 1) != first })
	e.expectSize(t, 0, 2)
	e.expectDone(t)
	b, err := os.ReadFile(log)
	if n := strings.Count(string(b), `"event":"restart"`); err != nil || n != 1 {
		t.Errorf("%d restarts in the log, %v", n, err)
	}
}

// issue returns a ticket for the job.
func (e *elrun) issue(t *testing.T, flags ...string) string {
	t.Helper()
	stdout, stderr, status := process.Command(t, append([]string{"ticket", e.job.Name}, flags...)...)
	if status != 0 || strings.Count(stdout, "\n") != 1 || strings.Contains(stderr, "on this host only") != (listen() == "local") {
		t.Fatalf("ticket: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// A second elrun joins, by a ticket or on the same host. It continues when the first elrun is
// killed, with which the first elrun's peers end.
func TestJoin(t *testing.T) {
	for name, flags := range map[string]func(*elrun) []string{
		"ticket":  func(e *elrun) []string { return []string{e.issue(t)} },
		"by name": func(e *elrun) []string { return []string{"--name", e.job.Name} },
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, "train", 2)
			e.expectSize(t, 0, 2)
			second := e.join(t, "train", 3, flags(e)...)
			for i := range 3 {
				second.expectSize(t, i, 5)
			}
			e.Expect(t, "has joined")
			e.Kill()
			second.expectSize(t, 0, 3)
			second.expectDone(t)
			process.Until(t, "the end of all peers", func() bool { return len(e.peers(t)) == 0 })
		})
	}
}

// Ctrl-C at an elrun that has only some of the job's peers makes these peers leave.
func TestJoinedElrunInterrupted(t *testing.T) {
	e := start(t, "train", 1)
	e.expectSize(t, 0, 1)
	second := e.join(t, "train", 2, e.issue(t))
	second.expectSize(t, 0, 3)
	second.expectSize(t, 1, 3)
	second.Signal(t, syscall.SIGINT)
	if status := second.Wait(t); status != 130 {
		t.Errorf("status %d", status)
	}
	e.expectSize(t, 0, 1)
	e.expectDone(t)
}

func TestBadTickets(t *testing.T) {
	e := start(t, "train", 1)
	e.expectSize(t, 0, 1)
	good, err := ticket.Parse(e.issue(t))
	if err != nil {
		t.Fatal(err)
	}
	minted, other, before := good, good, good
	minted.Seed[0] ^= 1
	other.Job = "other"
	before.Identity[0] ^= 1
	expired := e.issue(t, "--valid", "1s")
	old, err := ticket.Parse(expired)
	if err != nil {
		t.Fatal(err)
	}
	process.Until(t, "the ticket to expire", func() bool { return time.Now().After(old.Expiry.Add(time.Second)) })
	for name, c := range map[string]struct{ ticket, want string }{
		"garbage": {"elrun1.garbage", "bad ticket"},
		"expired": {expired, "ticket expired"},
		"minted":  {minted.String(), "no member knows this ticket"},
		"other":   {other.String(), "the ticket is of another job"},
		"before":  {before.String(), "the job of the ticket has ended"},
	} {
		second := e.join(t, "train", 1, c.ticket)
		if status := second.Wait(t); status != 1 || !strings.Contains(second.Out.String()+second.Err.String(), c.want) {
			t.Errorf("%s: status %d", name, status)
		}
	}
	if _, stderr, status := process.Command(t, "join", "--name", "no-such-job", "true"); status != 1 || !strings.Contains(stderr, "no such job") {
		t.Errorf("join of no job: status %d, stderr %q", status, stderr)
	}
	e.expectDone(t)
}

// expectVoters waits for a view in which n members vote. The members that have joined last have no
// vote until then, and the other members may continue without them.
func expectVoters(t *testing.T, log string, n int) {
	t.Helper()
	process.Until(t, fmt.Sprintf("a view with %d voters", n), func() bool {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var view struct{ Voters []string }
			// An incomplete line is an error now, and complete in a later check.
			if err := json.Unmarshal([]byte(line), &view); err == nil && len(view.Voters) == n {
				return true
			}
		}
		return false
	})
}

// One of two launchers loses both of its peers. The peer of the other launcher has no majority,
// waits, and gives up.
func TestQuorumLost(t *testing.T) {
	log := t.TempDir() + "/events"
	e := start(t, "train", 1, "--rejoin-timeout", "2s", "--events", log)
	e.expectSize(t, 0, 1)
	second := e.join(t, "train", 2, e.issue(t))
	second.expectSize(t, 0, 3)
	second.expectSize(t, 1, 3)
	expectVoters(t, log, 3)
	second.hit(t, syscall.SIGKILL, 0, 1)
	if status := e.Wait(t); status != launch.StatusQuorum {
		t.Errorf("status %d, want %d", status, launch.StatusQuorum)
	}
	e.Expect(t, "too few peers are left (1 present, 2 needed)", "the group gives up with status 75")
	if status := second.Wait(t); status != 1 {
		t.Errorf("the other elrun ended with status %d, want 1", status)
	}
}
