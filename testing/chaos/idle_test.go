package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// These are upper bounds for a member that waits for others.
const (
	idleCore    = 0.003  // processor time, as a part of one core
	idlePrivate = 25_600 // memory that the member shares with no other process, in KiB
)

// A member that waits for others uses little processor time and memory, with any number of members.
func TestIdleMember(t *testing.T) {
	peers, length := pick(16, 128), pick(time.Second, time.Minute)
	j := start(t, spec{Idle: true}, peers)
	out := &j.elruns[0].Out
	j.elruns[0].Until(t, "idle members", func() bool { return strings.Count(out.String(), "idle\n") == peers })
	j.pause(t, pick(time.Second, 10*time.Second))
	all, begun := j.Peers(t), time.Now()
	before := make([]time.Duration, len(all))
	for i, p := range all {
		before[i] = process.CPU(p.PID)
	}
	j.pause(t, length)
	var sum, most float64
	private, connections := 0, 0
	for i, p := range all {
		part := (process.CPU(p.PID) - before[i]).Seconds() / time.Since(begun).Seconds()
		sum, most = sum+part, max(most, part)
		private, connections = max(private, privateMemory(t, p.PID)), max(connections, established(t, p.PID))
	}
	t.Logf("%d peers: a member takes %.2f %% of a core, at most %.2f %%; at most %.1f MiB are private; at most %d connections",
		len(all), 100*sum/float64(len(all)), 100*most, float64(private)/1024, connections)
	if mean := sum / float64(len(all)); mean > idleCore && pick(false, true) { // the clock of processor time is too coarse for the short form
		t.Errorf("%.2f %% of a core, want at most %.2f %%", 100*mean, 100*idleCore)
	}
	if private > idlePrivate {
		t.Errorf("%d KiB of private memory, want at most %d", private, idlePrivate)
	}
	j.speedUp(t)
	if status := j.elruns[0].Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	j.checkGone(t)
}

// privateMemory returns the memory that a process shares with no other process, in KiB.
func privateMemory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[0], "Private_") {
			sum += number(f[1])
		}
	}
	return sum
}

// established counts the TCP and Unix socket connections of a process.
func established(t *testing.T, pid int) int {
	t.Helper()
	connected := make(map[string]bool)
	for table, column := range map[string]struct {
		state, inode int
		connected    string
	}{"tcp": {3, 9, "01"}, "tcp6": {3, 9, "01"}, "unix": {5, 6, "03"}} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > max(column.state, column.inode) && f[column.state] == column.connected {
				connected["socket:["+f[column.inode]+"]"] = true
			}
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && connected[to] {
			n++
		}
	}
	return n
}

// idle is the role of a peer that joins, makes one call, and waits until the file spec.Release exists.
func idle(ctx context.Context, s spec) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	session, err := g.Sessions().Next(ctx, 0)
	if err == nil {
		err = collective.Barrier(ctx, session.Comm)
	}
	if err == nil {
		fmt.Println("idle")
	}
	for tick := time.Tick(time.Second); err == nil && !s.released(); {
		<-tick
	}
	return errors.Join(err, g.Close())
}
