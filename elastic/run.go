package elastic

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Run identifies the training of a group, for files that outlive the group, such as checkpoints.
// Both IDs are 16 hexadecimal digits, equal at all members.
type Run struct {
	// Job identifies the job: all peers that its launchers start, also those that begin anew after
	// all members have died. A job that is started again has another ID.
	Job string
	// ID identifies the history of the state. It is Job, unless the job has resumed from the state of
	// an earlier run (Sessions.Resumed): then it is the ID of that run.
	ID string
}

// runIDs holds the IDs of a Run as numbers; 0 stands for an ID that is not known yet. The goroutine
// that calls Next owns it.
type runIDs struct{ job, run uint64 }

// newRunIDs returns the IDs of a member of the first view, and of a newcomer. If the configuration
// does not name the job, its ID follows from the first view, whose members are in no other job. A
// newcomer gets what it lacks from the members.
func newRunIDs(cfg *Config) (r runIDs) {
	h := xxhash.New()
	_, _ = h.WriteString(cfg.Job) // never fails
	if cfg.Job == "" {
		for _, m := range cfg.Peers {
			_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(m.ID))))
			_, _ = h.WriteString(string(m.ID))
		}
	}
	if cfg.Job != "" || len(cfg.Peers) > 0 {
		r.job = max(h.Sum64(), 1)
	}
	if len(cfg.Peers) > 0 {
		r.run = r.job
	}
	return r
}

// idsOf returns the IDs that all members of a session have from now on: those of the member whose
// state all get, or of the first member that knows them. It is a pure function of the gathered
// accounts, so all members get the same IDs.
func idsOf(all []account) (r runIDs) {
	ranks := leaders(all)
	for rank := range all {
		ranks = append(ranks, rank)
	}
	for _, rank := range ranks {
		if r.job == 0 {
			r.job = all[rank].job
		}
		if r.run == 0 {
			r.run = all[rank].run
		}
	}
	return r
}

// idText returns an ID in hexadecimal digits.
func idText(id uint64) string { return fmt.Sprintf("%016x", id) }

// Run returns the IDs of the training. A newcomer knows them when its first Next has returned. Call
// it only in the goroutine that calls Next.
func (s Sessions) Run() Run {
	if !s.g.made() {
		return Run{}
	}
	return Run{idText(s.g.runIDs.job), idText(s.g.runIDs.run)}
}

// Resumed records that the state of this peer comes from an earlier run with the given Run.ID. It
// must be called before the first Next. If members have resumed from different runs, the ID of the
// state that all members begin with counts.
func (s Sessions) Resumed(id string) error {
	n, err := strconv.ParseUint(id, 16, 64)
	switch {
	case !s.g.made():
		return fmt.Errorf("elastic: resume run %q: %w", id, errNoGroup)
	case err != nil || n == 0 || id != idText(n):
		return fmt.Errorf("elastic: resume run %q: want 16 hexadecimal digits, as Run.ID has", id)
	}
	s.g.runIDs.run = n
	return nil
}
