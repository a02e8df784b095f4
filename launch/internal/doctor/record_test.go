package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/spec"
)

// serveRecord serves the control socket of a peer of two, which waits in a call if it waits.
func serveRecord(t *testing.T, job string, index int, waits bool) {
	t.Helper()
	record := func() flight.Record {
		start := time.Now()
		ring := flight.New(start)
		r := ring.Session(1, index, []string{"ann", "bob"})
		if waits {
			r.Begin(&flight.Begun{Envelope: &transport.Envelope{Seq: 1, Call: transport.Call{Kind: transport.KindBarrier, Root: -1}}, Peer: -1})
		}
		out := ring.Record(start.Add(time.Second))
		out.Peer, out.Index, out.PID, out.Stacks = []string{"ann", "bob"}[index], index, os.Getpid(), "goroutine 1 [running]:\n\tmain.main()\n"
		return out
	}
	status := func() spec.Status {
		return spec.Status{Job: job, Members: []spec.MemberStatus{{ID: "ann", Index: 0, Rank: 0, State: "waiting"}, {ID: "bob", Index: 1, Rank: 1, State: "unknown"}}}
	}
	c, err := ctl.Serve(ctl.SocketName{Job: job, Index: index, PID: os.Getpid()}, ctl.Services{Status: status, Record: record})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}

// The records of all peers are in the directory, and tell the same when they are read. A directory takes one record.
func TestRecord(t *testing.T) {
	job := spec.JobName("record", strconv.Itoa(os.Getpid())+"t")
	serveRecord(t, job, 0, true)
	serveRecord(t, job, 1, false)
	dir := filepath.Join(t.TempDir(), "a", "b")
	found, err := Record(t.Context(), ctl.Of(job), dir, "test")
	if err != nil || found.Cause != flight.Absent || found.Peer != "bob" || !strings.Contains(found.Stacks, "main.main") {
		t.Errorf("got %+v, %v", found, err)
	}
	for _, path := range []string{dir, filepath.Dir(dir)} { // of several directories the last counts
		if read, err := ReadRecords(path); err != nil || read.Text != found.Text || read.Stacks != found.Stacks {
			t.Errorf("%s: read %+v, %v, want %+v", path, read, err, found)
		}
	}
	if _, err := Record(t.Context(), ctl.Of(job), dir, "test"); err == nil || !strings.Contains(err.Error(), "has records already") {
		t.Errorf("a second record: %v", err)
	}
	if _, err := Record(t.Context(), ctl.Of(job+"-none"), t.TempDir(), "test"); err == nil {
		t.Error("no error for a job that does not run")
	}
}

// A peer that takes connections and does not answer, as one that is stopped, is named by what the other knows of it.
func TestRecordSilent(t *testing.T) {
	job := spec.JobName("silent", strconv.Itoa(os.Getpid())+"t")
	serveRecord(t, job, 0, true)
	l, err := ctl.Listen(ctl.SocketName{Job: job, Index: 1, PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	var kept []net.Conn
	var peer sync.WaitGroup
	peer.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			kept = append(kept, conn)
		}
	})
	found, err := Record(t.Context(), ctl.Of(job), t.TempDir(), "test")
	if err != nil || found.Cause != flight.NoAnswer || found.Peer != "bob" || !strings.Contains(found.Text, "does not answer: no answer within 2s") {
		t.Errorf("got %+v, %v", found, err)
	}
	_ = l.Close()
	peer.Wait()
	for _, conn := range kept {
		_ = conn.Close()
	}
}

func TestReadRecordsErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("empty/x", "")
	write("bad/job.json", "{")
	write("one/job.json", `{"version":1,"job":"one"}`)
	write("one/peer-0-1.json", `{"version":1`)
	write("two/job.json", `{"version":1,"job":"two"}`)
	write("three/job.json", `{"version":1,"job":"three"}`)
	for _, c := range []struct {
		dirs []string
		want string
	}{
		{[]string{"none"}, "no such file"},
		{[]string{"empty"}, "has no job.json"},
		{[]string{"bad"}, "decode what is known"},
		{[]string{"one"}, "peer-0-1.json: flight: decode record"},
		{[]string{"two", "three"}, "name directories of one job"},
	} {
		var all []string
		for _, d := range c.dirs {
			all = append(all, filepath.Join(dir, d))
		}
		if found, err := ReadRecords(all...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %+v, %v, want %q", c.dirs, found, err, c.want)
		}
	}
	if found, err := ReadRecords(filepath.Join(dir, "two")); err != nil || found.Cause != flight.None {
		t.Errorf("got %+v, %v", found, err)
	}
}

// What a launcher knows of its peers says how their processes have ended.
func TestKnownByLauncher(t *testing.T) {
	got := knownByLauncher(timeline.Snapshot{Peers: []timeline.Peer{
		{ID: "a", PID: 1, Exit: &event.Exit{Status: -1, Signal: 9}}, {ID: "b", Exit: &event.Exit{Status: 3, Says: "disk full"}}, {ID: "c", Exit: &event.Exit{Asked: true}},
		{ID: "d", Exit: &event.Exit{Status: -1, Lost: true}}, {ID: "e", Cause: "silent"}, {ID: "f", State: "running", Last: timeline.LastStep{Step: 7}},
	}})
	for i, want := range []flight.Peer{
		{ID: "a", PID: 1, End: "killed by signal 9"}, {ID: "b", End: "status 3 disk full"}, {ID: "c"},
		{ID: "d", Error: "the connection to its host broke"}, {ID: "e", Error: "lost: silent"}, {ID: "f", State: "running", Step: 7},
	} {
		if got[i] != want {
			t.Errorf("got %+v, want %+v", got[i], want)
		}
	}
}
