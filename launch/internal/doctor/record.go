package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/spec"
)

// The names of the files of a record, and the limits of what is read of them.
const (
	jobFile     = "job.json"
	peerPrefix  = "peer-"
	peerSuffix  = ".json"
	maxFileSize = 32 << 20 // bytes
	maxFiles    = 4096
)

// Record is launch.Job.Record.
func Record(ctx context.Context, job *ctl.Job, dir, reason string) (flight.Finding, error) {
	about, records, err := collect(ctx, job, reason)
	if err == nil {
		err = writeRecords(dir, about, records)
	}
	if err != nil {
		return flight.Finding{}, fmt.Errorf("launch: record job %s: %w", job.Name(), err)
	}
	return flight.Judge(about, records), nil
}

// collect asks the peers of a job for their records, and gathers what is known of the peers.
func collect(ctx context.Context, job *ctl.Job, reason string) (flight.Job, []flight.Record, error) {
	about := flight.Job{Version: flight.Version, Job: job.Name(), Reason: reason, Taken: time.Now(), Peers: []flight.Peer{}}
	answers, err := job.Records(ctx)
	if err != nil {
		return about, nil, err
	}
	if s, err := settled(ctx, job); err == nil {
		about.Peers = knownByLauncher(s)
	} else if s, err := job.Status(ctx); err == nil { // no elrun runs; the peers know of each other
		about.Peers = knownByPeers(s)
	}
	host, _ := os.Hostname() // "" if unknown: then no process counts as one of this host, unless its host is unknown, too
	var records []flight.Record
	for _, a := range answers {
		p := entryOf(&about, a)
		p.Halted = (p.Host == "" || p.Host == host) && proc.Stopped(a.At.PID)
		if a.Err != nil {
			p.Error = cause(a.Err)
			continue
		}
		r := *a.Reply.Record
		p.Answered, p.Step, p.State = true, r.Step, cmp.Or(r.State, p.State)
		records = append(records, r)
	}
	for i := range about.Peers {
		if p := &about.Peers[i]; p.End != "" && p.ID != "" && !p.Answered {
			if r := job.Remains(ctx, p.ID); r != nil {
				r.Step, r.Host = p.Step, p.Host
				records = append(records, *r)
			}
		}
	}
	return about, records, nil
}

// How often settled asks, and the time between.
const (
	settleTries  = 6
	settlePeriod = 50 * time.Millisecond
)

// settled returns what the launchers know. The members may know of a death a moment before the launcher has the status of the process and
// what is left of its calls; settled waits that long.
func settled(ctx context.Context, job *ctl.Job) (s timeline.Snapshot, err error) {
	for range settleTries {
		s, err = job.Snapshot(ctx)
		due := slices.ContainsFunc(s.Peers, func(p timeline.Peer) bool { return p.Exit == nil && p.Cause != "" })
		if err != nil || !due || pause.For(ctx, settlePeriod) != nil {
			break
		}
	}
	return s, err
}

// cause returns the innermost error, which says why a peer does not answer.
func cause(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Sprintf("no answer within %v", ctl.ControlPeriod)
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// entryOf returns the entry of the peer that a socket belongs to, which is added if there is none.
func entryOf(about *flight.Job, a ctl.Answer) *flight.Peer {
	id := ""
	if a.Err == nil {
		id = a.Reply.Record.Peer
	}
	at := slices.IndexFunc(about.Peers, func(p flight.Peer) bool {
		return id != "" && p.ID == id || id == "" && p.PID == a.At.PID && p.Index == a.At.Index && p.End == ""
	})
	if at < 0 && id == "" { // peers know no process IDs of each other
		at = slices.IndexFunc(about.Peers, func(p flight.Peer) bool { return p.PID == 0 && p.Index == a.At.Index && !p.Answered })
	}
	if at < 0 {
		about.Peers = append(about.Peers, flight.Peer{ID: id, Rank: -1})
		at = len(about.Peers) - 1
	}
	p := &about.Peers[at]
	p.PID, p.Index = a.At.PID, a.At.Index
	return p
}

// knownByLauncher returns what the launchers know of the peers.
func knownByLauncher(s timeline.Snapshot) []flight.Peer {
	out := []flight.Peer{}
	for i := range s.Peers {
		p := &s.Peers[i]
		k := flight.Peer{ID: p.ID, Index: p.Index, Host: p.Host, PID: p.PID, Rank: p.Rank, State: p.State, Step: p.Last.Step}
		switch e := p.Exit; {
		case e == nil && p.Cause != "":
			k.Error = "lost: " + p.Cause
		case e == nil:
		case e.Lost:
			k.Error = "the connection to its host broke"
		case e.Signal != 0:
			k.End = fmt.Sprintf("killed by signal %d", e.Signal)
		case !e.Asked:
			k.End = strings.TrimSpace(fmt.Sprintf("status %d %s", e.Status, e.Says))
		}
		out = append(out, k)
	}
	return out
}

// knownByPeers returns what the peers know of each other.
func knownByPeers(s spec.Status) []flight.Peer {
	out := []flight.Peer{}
	for _, m := range s.Members {
		out = append(out, flight.Peer{ID: m.ID, Index: m.Index, Host: m.Host, PID: m.PID, Rank: m.Rank, State: m.State, SeenMS: max(0, m.SeenMS)})
	}
	return out
}

// writeRecords writes a file for each record, and then the file of the job, so that a directory with the latter is complete.
func writeRecords(dir string, about flight.Job, records []flight.Record) error {
	if err := private.MkdirAll(dir); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, jobFile)); err == nil {
		return fmt.Errorf("%s has records already: name another directory", dir)
	}
	for i := range records {
		r := &records[i]
		if err := writeJSON(filepath.Join(dir, fmt.Sprintf("%s%d-%d%s", peerPrefix, r.Index, r.PID, peerSuffix)), r); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dir, jobFile), about)
}

// writeJSON writes a file as a whole: a reader finds the whole text or no file.
func writeJSON(path string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".record-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// ReadRecords is launch.ReadRecords.
func ReadRecords(dirs ...string) (flight.Finding, error) {
	var about flight.Job
	var records []flight.Record
	for _, dir := range dirs {
		j, more, err := readRecords(dir)
		if err != nil {
			return flight.Finding{}, fmt.Errorf("launch: read records: %w", err)
		}
		if about.Job != "" && j.Job != about.Job {
			return flight.Finding{}, fmt.Errorf("launch: read records: %s has job %s, and %s has job %s: name directories of one job", dirs[0], about.Job, dir, j.Job)
		}
		about.Job, about.Peers = j.Job, append(about.Peers, j.Peers...)
		records = append(records, more...)
	}
	return flight.Judge(merged(about), records), nil
}

// merged leaves one entry for each peer: what a host knows of its own peers goes before what others know of them.
func merged(about flight.Job) flight.Job {
	slices.SortStableFunc(about.Peers, func(a, b flight.Peer) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(b.PID, a.PID)) })
	about.Peers = slices.CompactFunc(about.Peers, func(a, b flight.Peer) bool { return a.ID != "" && a.ID == b.ID })
	return about
}

// readRecords reads the files of one directory, or if it has none those of its last subdirectory in the order of names.
func readRecords(dir string) (about flight.Job, records []flight.Record, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return about, nil, err
	}
	text, err := readLimited(filepath.Join(dir, jobFile))
	if errors.Is(err, os.ErrNotExist) {
		for _, f := range slices.Backward(files) {
			if _, none := os.Stat(filepath.Join(dir, f.Name(), jobFile)); none == nil {
				return readRecords(filepath.Join(dir, f.Name()))
			}
		}
		return about, nil, fmt.Errorf("%s has no %s: elrun doctor JOB --record DIR makes such a directory", dir, jobFile)
	}
	if err == nil {
		about, err = flight.DecodeJob(text)
	}
	if err != nil {
		return about, nil, err
	}
	for _, f := range files[:min(len(files), maxFiles)] {
		if !strings.HasPrefix(f.Name(), peerPrefix) || !strings.HasSuffix(f.Name(), peerSuffix) {
			continue
		}
		text, err := readLimited(filepath.Join(dir, f.Name()))
		if err != nil {
			return about, nil, err
		}
		r, err := flight.DecodeRecord(text)
		if err != nil {
			return about, nil, fmt.Errorf("%s: %w", filepath.Join(dir, f.Name()), err)
		}
		records = append(records, r)
	}
	return about, records, nil
}

// readLimited reads a file of at most maxFileSize bytes.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(text) > maxFileSize {
		err = fmt.Errorf("%s is longer than %d MiB", path, maxFileSize>>20)
	}
	return text, err
}
