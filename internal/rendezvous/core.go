package rendezvous

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// candidate is a launcher: the name of its host, for people and for the order, and its ID.
type candidate struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// compare orders candidates: mnist-2 comes before mnist-10.
func (c candidate) compare(d candidate) int {
	return cmp.Or(cmp.Compare(len(c.Name), len(d.Name)), strings.Compare(c.Name, d.Name), strings.Compare(c.ID, d.ID))
}

// stage is how far a launcher is.
type stage string

const (
	seeking  stage = "seeking"
	running  stage = "running" // it has the job, or is about to
	finished stage = "finished"
)

// lease is how long a grant holds at least. A claim takes at most half of that.
const lease = 10 * time.Second

// ballot is a launcher's stage and the candidate that it lets start the job. It is pure and not safe for
// concurrent use.
type ballot struct {
	self    candidate
	stage   stage
	granted candidate // nobody if zero
	at      netip.Addr
	until   time.Time
}

// grant decides on the claim of c, which may be self, from an address.
func (b *ballot) grant(c candidate, at netip.Addr, now time.Time) bool {
	taken := b.granted != (candidate{}) && b.granted != c
	if b.stage != seeking || taken || b.self.compare(c) < 0 {
		return false
	}
	b.granted, b.at, b.until = c, at, now.Add(lease)
	return true
}

// withdraw ends this launcher's own claim.
func (b *ballot) withdraw() {
	if b.granted == b.self {
		b.granted = candidate{}
	}
}

// revise ends a grant after a look, which began at a time: if its lease was over by then, and
// who got it has not started the job. Without having asked it nobody may forget it.
func (b *ballot) revise(l look, begun time.Time) {
	if b.granted == b.self || begun.Before(b.until) {
		return
	}
	used := func(v visited) bool { return v.addr == b.at && v.From == b.granted && v.Stage != seeking }
	silent := slices.ContainsFunc(l.silent, func(s silence) bool { return s.addr == b.at })
	if !silent && !slices.ContainsFunc(l.answers, used) {
		b.granted = candidate{}
	}
}

// look is what a launcher has found at the addresses of the name.
type look struct {
	err     error     // of the DNS
	answers []visited // of others, lowest first
	silent  []silence
}

// visited is an answer, and where it comes from.
type visited struct {
	answer
	addr netip.Addr
}

// silence is an address where somebody may be who cannot be asked.
type silence struct {
	addr netip.Addr
	why  error
}

// move is what a look leads to.
type move int

const (
	wait move = iota
	join      // ask those of look.having for a ticket
	claim
	end // the job has finished
)

// rules are when a launcher may claim the job.
type rules struct {
	need     int
	patience time.Duration
}

// decide returns what to do after a look, self having looked for so long, and why.
func (r rules) decide(self candidate, l look, waited time.Duration) (move, string) {
	if slices.ContainsFunc(l.answers, func(v visited) bool { return v.Stage == finished }) {
		return end, "the job has finished"
	}
	if len(l.having()) > 0 {
		return join, ""
	}
	there := len(l.answers) + 1
	switch {
	case l.err != nil:
		return wait, fmt.Sprintf("nobody is known yet: %v", l.err)
	case len(l.silent) > 0:
		return wait, fmt.Sprintf("%s may have the job, and cannot be asked: %v", l.silent[0].addr, l.silent[0].why)
	case there < r.need && waited < r.patience:
		return wait, fmt.Sprintf("%d of the %d are there that may start the job; in %v those there start it", there, r.need, r.patience)
	case there > 1 && l.answers[0].From.compare(self) < 0:
		return wait, fmt.Sprintf("%s is to start the job", l.answers[0].From.Name)
	}
	return claim, ""
}

// having returns those that have the job.
func (l look) having() (out []visited) {
	for _, v := range l.answers {
		if v.Stage == running {
			out = append(out, v)
		}
	}
	return out
}
