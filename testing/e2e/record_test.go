package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// spin makes calls until the last rank begins a loop without an end.
func spin(ctx context.Context) error {
	g, s, err := join(ctx)
	if err != nil {
		return err
	}
	v := []int64{1}
	for range 10 {
		if err := collective.AllReduce(ctx, s.Comm, v, v, collective.Max[int64]); err != nil {
			return errors.Join(err, g.Close())
		}
	}
	fmt.Println("calls made")
	if s.Rank == s.Comm.Size()-1 {
		deadLoop()
	}
	return errors.Join(collective.Barrier(ctx, s.Comm), g.Close())
}

// deadLoop never returns.
func deadLoop() {
	for i := uint(1); i != 0; i += 2 {
		continue
	}
}

// record takes the records of a job until they name somebody, and returns what elrun doctor says of them, at once and when it
// reads them.
func (e *elrun) record(t *testing.T) (found flight.Finding, read string) {
	t.Helper()
	dir := ""
	for i := 0; found.Cause == "" || found.Cause == flight.None; i++ {
		dir = filepath.Join(t.TempDir(), fmt.Sprint(i))
		stdout, stderr, status := process.Command(t, "doctor", e.job.Name, "--record", dir, "--json")
		if err := json.Unmarshal([]byte(stdout), &found); err != nil || status != 0 {
			t.Fatalf("status %d, %v: %s", status, err, stderr)
		}
	}
	read, stderr, status := process.Command(t, "doctor", "--read", dir)
	if status != 0 || !strings.HasPrefix(read, found.Text+"\n") {
		t.Errorf("status %d, read %q %s, want %q", status, read, stderr, found.Text)
	}
	return found, read
}

// A peer whose program is in a loop without an end gives its record, and its goroutines show the loop.
func TestRecordDeadLoop(t *testing.T) {
	e := start(t, "spin", 3)
	e.Expect(t, "[0] calls made", "[1] calls made", "[2] calls made")
	found, read := e.record(t)
	if found.Cause != flight.Absent || found.Index != 2 || !strings.Contains(found.Text, "has not begun call 12, its last was 11") || !strings.Contains(read, "e2e.deadLoop") {
		t.Errorf("got %+v", found)
	}
	e.signalPeer(t, 2, syscall.SIGKILL)
	e.Wait(t)
}

// With --record elrun takes the records when a call stalls and when a process fails.
func TestRecordByItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	e := start(t, "stall", 3, "--record", dir)
	e.expectRanks(t, 3)
	e.Expect(t, "has not begun call")
	found, err := launch.ReadRecords(dir)
	if err != nil || found.Cause != flight.Absent || found.Index != 2 {
		t.Errorf("after a stall: %+v, %v", found, err)
	}
	e.signalPeer(t, 2, syscall.SIGKILL)
	e.Wait(t)
	process.Until(t, "the record of the exit", func() bool {
		found, err = launch.ReadRecords(dir)
		return err == nil && found.Cause == flight.Lost && found.Index == 2
	})
}

// A peer that is stopped does not answer. What its launcher knows of it, and the state of its process, name it; after a moment the
// launcher kills it, and the others go on.
func TestRecordStopped(t *testing.T) {
	e := start(t, "train", 3)
	e.expectRanks(t, 3)
	e.signalPeer(t, 1, syscall.SIGSTOP)
	found, _ := e.record(t)
	if found.Index != 1 || found.Cause != flight.Halted && found.Cause != flight.Lost && found.Cause != flight.NoAnswer {
		t.Errorf("got %+v", found)
	}
	e.Signal(t, syscall.SIGINT)
	e.Wait(t)
}

// A peer that is killed has one record, and elrun says so in one line.
func TestRecordOfDeath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	e := start(t, "train", 3, "--record", dir)
	e.expectRanks(t, 3)
	e.signalPeer(t, 1, syscall.SIGKILL)
	e.Expect(t, "the last calls are in")
	e.Signal(t, syscall.SIGINT)
	e.Wait(t)
	all, err := os.ReadDir(dir)
	if lines := strings.Count(e.Err.String(), "the last calls are in"); err != nil || len(all) != 1 || lines != 1 {
		t.Errorf("%d records and %d lines, %v: %v", len(all), lines, err, all)
	}
	found, err := launch.ReadRecords(dir)
	if err != nil || found.Cause != flight.Lost || !strings.Contains(found.Text, "killed by signal 9") {
		t.Errorf("got %+v, %v", found, err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "peer-*.json")) // no error: the pattern is valid
	ended := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		r, wrong := flight.DecodeRecord(text)
		if err != nil || wrong != nil {
			t.Error(err, wrong)
		}
		if r.Ended {
			ended++
			if len(r.Calls) == 0 || r.Peer != found.Peer {
				t.Errorf("%d calls of %q are left, want some of %q", len(r.Calls), r.Peer, found.Peer)
			}
		}
	}
	if len(files) != 3 || ended != 1 {
		t.Errorf("%d records, %d of them of a dead peer, want 3 and 1", len(files), ended)
	}
}

// SIGQUIT takes a record, and then ends elrun as it does without a record.
func TestRecordQuit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	e := start(t, "train", 2, "--record", dir)
	e.expectRanks(t, 2)
	e.Signal(t, syscall.SIGQUIT)
	if status := e.Wait(t); status != 2 || !e.Says("elrun: SIGQUIT: the last calls are in "+dir, "SIGQUIT: quit") {
		t.Errorf("status %d", status)
	}
	if found, err := launch.ReadRecords(dir); err != nil || found.Text == "" {
		t.Errorf("got %+v, %v", found, err)
	}
	process.Until(t, "the end of the peers", func() bool { return len(e.job.Peers(t)) == 0 })
}

// A peer that gets SIGQUIT prints its goroutines and ends, which is a death for the others.
func TestRecordQuitPeer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	e := start(t, "train", 3, "--record", dir)
	e.expectRanks(t, 3)
	e.signalPeer(t, 1, syscall.SIGQUIT)
	e.Expect(t, "SIGQUIT: quit", "the last calls are in")
	e.Signal(t, syscall.SIGINT)
	e.Wait(t)
	found, err := launch.ReadRecords(dir)
	if err != nil || found.Cause != flight.Lost || !strings.Contains(found.Text, "has ended: status 2") {
		t.Errorf("got %+v, %v", found, err)
	}
}
