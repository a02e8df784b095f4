package rendezvous

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// candidate is a launcher that may start the job. Name is the name of its host, which messages
// show; ID is unique. Launchers are ordered by Name, and launchers with the same Name by ID.
type candidate struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// compare orders candidates by name, shorter names first, and then by ID: mnist-2 comes before
// mnist-10.
func (c candidate) compare(d candidate) int {
	return cmp.Or(cmp.Compare(len(c.Name), len(d.Name)), strings.Compare(c.Name, d.Name), strings.Compare(c.ID, d.ID))
}

// check returns errMessage for an invalid candidate.
func (c candidate) check() error {
	if c.ID == "" || len(c.ID) > maxName || len(c.Name) > maxName {
		return errMessage
	}
	return nil
}

// stage is a launcher's stage in the rendezvous.
type stage string

const (
	seeking  stage = "seeking"  // the launcher looks for the job
	running  stage = "running"  // the launcher has the job, or is about to get it
	finished stage = "finished" // the launcher knows that the job has finished
)

// lease is the least time for which a grant is valid. A claim takes at most half of this time, so
// that a claim never succeeds by a grant that has expired.
const lease = 10 * time.Second

// ballot holds a launcher's stage and its grant: the candidate that it lets start the job. It does
// no I/O, reads no clock, and is not safe for concurrent use.
//
// Invariant: at any time at most one candidate has the grant of a launcher.
type ballot struct {
	self    candidate
	stage   stage
	granted candidate // zero if nobody has the grant
	// at is the address of the granted candidate, until the time at which its lease ends.
	at    netip.Addr
	until time.Time
}

// grant decides about the claim of the candidate c, which may be this launcher, and reports whether
// c has the grant now. at is the address of c.
func (b *ballot) grant(c candidate, at netip.Addr, now time.Time) bool {
	// A launcher with a lower name has precedence over c: c must wait for it.
	taken := b.granted != (candidate{}) && b.granted != c
	if b.stage != seeking || taken || b.self.compare(c) < 0 {
		return false
	}
	b.granted, b.at, b.until = c, at, now.Add(lease)
	return true
}

// withdraw cancels this launcher's grant to itself after its own claim has failed. There is no need
// to wait for the end of the lease: the launcher knows that it has not started the job.
func (b *ballot) withdraw() {
	if b.granted == b.self {
		b.granted = candidate{}
	}
}

// revise ends the grant after a survey that began at the time begun, if the lease had expired by
// then and the survey shows that the granted candidate has not started the job. A candidate that
// could not be asked keeps its grant, because it may have started the job.
func (b *ballot) revise(s survey, begun time.Time) {
	if b.granted == b.self || begun.Before(b.until) {
		return
	}
	used := func(v addressedAnswer) bool { return v.addr == b.at && v.From == b.granted && v.Stage != seeking }
	silent := slices.ContainsFunc(s.unreachable, func(s unreachableAddr) bool { return s.addr == b.at })
	if !silent && !slices.ContainsFunc(s.answers, used) {
		b.granted = candidate{}
	}
}

// survey is the result of asking all addresses of the name.
type survey struct {
	err         error             // error of the DNS lookup
	answers     []addressedAnswer // answers of other launchers, lowest candidate first
	unreachable []unreachableAddr
}

// addressedAnswer is an answer with the address that sent it.
type addressedAnswer struct {
	answer
	addr netip.Addr
}

// unreachableAddr is an address that neither answers nor refuses connections. A launcher with the
// job may be there, so nobody may start the job.
type unreachableAddr struct {
	addr netip.Addr
	why  error
}

// decision is the consequence of a survey.
type decision int

const (
	wait  decision = iota // survey again later
	join                  // ask the launchers in survey.withJob for a ticket
	claim                 // ask all launchers for the grant, and start the job with all grants
	end                   // the job has finished
)

// rules are the conditions under which a launcher may claim the job; see Config for the fields.
type rules struct {
	need     int
	patience time.Duration
}

// decide returns the next move of self after a survey, and the reason for the move. waited is the
// time since self began to look for the job.
func (r rules) decide(self candidate, s survey, waited time.Duration) (decision, string) {
	// A job that exists, running or finished, takes precedence over every condition for a start.
	if slices.ContainsFunc(s.answers, func(v addressedAnswer) bool { return v.Stage == finished }) {
		return end, "the job has finished"
	}
	if len(s.withJob()) > 0 {
		return join, ""
	}
	there := len(s.answers) + 1
	// The cases are ordered so that the reason names the most basic obstacle.
	switch {
	case s.err != nil:
		return wait, fmt.Sprintf("no other launcher is known yet: %v", s.err)
	case len(s.unreachable) > 0:
		return wait, fmt.Sprintf("%s may run the job but does not answer: %v", s.unreachable[0].addr, s.unreachable[0].why)
	case there < r.need && waited < r.patience:
		return wait, fmt.Sprintf("%d of the %d launchers needed are present; after %v those present start the job", there, r.need, r.patience)
	case there > 1 && s.answers[0].From.compare(self) < 0:
		return wait, fmt.Sprintf("waiting for %s to start the job", s.answers[0].From.Name)
	}
	return claim, ""
}

// withJob returns the answers of launchers that have the job.
func (s survey) withJob() (out []addressedAnswer) {
	for _, v := range s.answers {
		if v.Stage == running {
			out = append(out, v)
		}
	}
	return out
}

// add records the result of asking an address. An address that refuses the connection is left out,
// because no launcher has the job there: a launcher with the job listens.
func (s *survey) add(v addressedAnswer, err error, self candidate) {
	switch {
	case err == nil && v.From != self:
		s.answers = append(s.answers, v)
	case err != nil && !errors.Is(err, syscall.ECONNREFUSED):
		s.unreachable = append(s.unreachable, unreachableAddr{v.addr, err})
	}
}
