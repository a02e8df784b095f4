package run

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/doctor"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// recordLog takes the records of the peers' calls when something goes wrong, each into a directory of its own below
// Output.Records, in a goroutine of its own. The launcher's loop calls offer. A nil recordLog does nothing.
type recordLog struct {
	dir, job string
	say      func(format string, args ...any)
	due      chan string // reasons
	ended    chan struct{}
	ctx      context.Context // its end ends the record that is being taken
	cancel   context.CancelFunc
	recent   map[string]time.Time // by kind: when the last record was due
	dead     map[string]bool      // short IDs of the peers whose deaths have a record
	left     int                  // number of records that may still be taken
}

const (
	// maxRecords bounds the records of a job, since each may take some megabytes.
	maxRecords = 20
	// recordPeriod is the shortest time between two records of one kind: the peers report one stall each.
	recordPeriod = 10 * time.Second
	// shownRecord bounds a line about a record, in bytes.
	shownRecord = 190
)

// start starts the goroutine, which finish ends; say is set. It returns nil if the options ask for no records.
func (r *recordLog) start(o *spec.Options) *recordLog {
	if o.Output.Records == "" {
		return nil
	}
	r.dir, r.job, r.left = o.Output.Records, o.Job, maxRecords
	r.due, r.ended, r.recent, r.dead = make(chan string, 1), make(chan struct{}), make(map[string]time.Time), make(map[string]bool)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.run()
	return r
}

// offer makes a record due if an event tells of something that went wrong. It does not block: while a record is being taken,
// one more waits, and further ones are left out.
func (r *recordLog) offer(e event.Event, now time.Time) {
	if r == nil || r.left == 0 {
		return
	}
	reason, dead := trouble(e)
	kind := reason
	if dead != "" {
		kind = "death"
	}
	last, known := r.recent[kind]
	if reason == "" || r.dead[dead] || known && now.Sub(last) < recordPeriod {
		return
	}
	select {
	case r.due <- reason:
		r.recent[kind] = now
		r.left--
		if dead != "" {
			r.dead[dead] = true
		}
	default:
	}
}

// stop takes no further records: somebody has asked the job to end, so the deaths from now on are wanted.
func (r *recordLog) stop() {
	if r != nil {
		r.left = 0
	}
}

// trouble returns the reason for a record that an event gives, "" for none, and the peer that is dead, "" for none. Of a death tell the
// members (Lost) and the launcher (Exit), in any order.
func trouble(e event.Event) (reason, dead string) {
	switch b := e.Body.(type) {
	case event.Stall:
		if !b.Over {
			return "stall", ""
		}
	case event.Lost:
		return "lost", b.Who
	case event.Exit:
		if !b.Asked && (b.Status != 0 || b.Signal != 0) {
			return "exit", cmp.Or(e.Peer, strconv.Itoa(b.PID)) // a process without a hello has no ID
		}
	case event.Quorum:
		if b.State == "lost" {
			return "quorum", ""
		}
	}
	return "", ""
}

// run takes the records that are due. A job whose peers have all ended has no record.
func (r *recordLog) run() {
	defer close(r.ended)
	for reason := range r.due {
		dir := filepath.Join(r.dir, time.Now().Format("20060102-150405.000-")+reason)
		found, err := doctor.Record(r.ctx, ctl.Of(r.job), dir, reason)
		switch {
		case err == nil:
			r.say("%s", wire.Clip("the last calls are in "+dir+": "+found.Text, shownRecord))
		case r.ctx.Err() == nil && !errors.Is(err, ctl.ErrNoJob):
			r.say("--record: %v", err)
		}
	}
}

// finish waits for the record that is being taken, as long as the patience. The record asks the launcher, too: finish runs the functions
// that calls has meanwhile.
func (r *recordLog) finish(patience time.Duration, calls <-chan func()) {
	if r == nil {
		return
	}
	close(r.due)
	defer r.cancel()
	late := time.AfterFunc(patience, r.cancel)
	defer late.Stop()
	for {
		select {
		case f := <-calls:
			f()
		case <-r.ended:
			return
		}
	}
}

// maxRemains bounds the records of failed peers that a launcher keeps.
const maxRemains = 16

// keep keeps the record of a peer that has failed, for who asks for the records of the job.
func (r *runner) keep(from int, record flight.Record) {
	record.Peer = r.roster.shortID(from)
	if c := r.procs.peers[from]; c != nil {
		record.PID, record.Host = c.PID(), c.host
	}
	if len(r.remains) == maxRemains {
		r.remains = slices.Delete(r.remains, 0, 1)
	}
	r.remains = append(r.remains, record)
}

// remainsOf returns the last record of the failed peer with a short ID, nil for none. Nobody changes it.
func (r *runner) remainsOf(id string) *flight.Record {
	for _, record := range slices.Backward(r.remains) {
		if record.Peer == id {
			return &record
		}
	}
	return nil
}
