package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// Candidate is the description of a newcomer that is level and asks for admission. A zero field is
// unknown.
type Candidate struct {
	Forced    bool          `json:"forced,omitempty"`    // admit the newcomer regardless of its speed
	Speed     int64         `json:"speed,omitempty"`     // speed of computing, in a unit that the State defines
	Fixed     time.Duration `json:"fixed,omitempty"`     // the part of the newcomer's step time that does not depend on its share
	Most      int           `json:"most,omitempty"`      // upper bound of its share, in a unit that the State defines; 0 for none
	Bandwidth int64         `json:"bandwidth,omitempty"` // rate at which the newcomer received the state, in bytes a second
	Delay     time.Duration `json:"delay,omitempty"`     // shortest round trip to a member so far
}

// Application is the input of a Judge.
type Application struct {
	Candidate
	// Coming are other newcomers that this member has admitted and that are in no view yet.
	Coming []Candidate
	// Members are the members of the present view in rank order.
	Members []ID
	// Near: the newcomer and all members are on one host, so Bandwidth and Delay, which measure the
	// network, do not count.
	Near bool
}

// Judge is a State that decides which peers may join. Without a Judge a group admits every peer
// that has a right to join (Config.Entry) and whose settings equal the job's.
type Judge interface {
	State
	// Admit returns nil if the newcomer may join now. An error that is ErrNotYet means that the
	// decision is not possible yet; the newcomer asks again soon. Any other error parks the
	// newcomer: the newcomer receives the error's text, follows the updates of the job, and asks
	// again at intervals and when a member is gone. Unlike the other methods, Admit is called at
	// any time, in a goroutine of the group, and must not block.
	Admit(a Application) error
}

// Trier is a State that can measure the speed of this peer before it joins.
type Trier interface {
	State
	// Trial computes a part of a step with the state of the job, to measure this peer's speed. It
	// discards the result and leaves the state unchanged. It is called before each request for
	// admission. It returns early with an error when ctx ends. Any other error is final.
	Trial(ctx context.Context) (Candidate, error)
}

// ErrNotYet means that it cannot be decided at the moment whether a peer may join.
var ErrNotYet = errors.New("cannot be decided yet")

// errUnreachable means that a newcomer and a member cannot connect to each other.
var errUnreachable = errors.New("cannot connect: let one of them listen where the other can reach it, or allow a relay")

// approval is a newcomer's permission to join, needed when its membership machine asks for
// admission. It is a lease: it expires (offer.Lease), and a newcomer that still wants to join renews
// it with its offers.
type approval struct {
	candidate Candidate
	entry     Entry
	until     time.Time
}

// minLease and maxLease bound the lease that a newcomer can choose. It chooses two rounds of its
// offers, so that the lease survives one offer that is late.
const (
	minLease = 5 * time.Second
	maxLease = 2 * maxRound
)

// until returns the end of the lease for which an offer asks.
func (o offer) until() time.Time { return time.Now().Add(min(max(o.Lease, minLease), maxLease)) }

// maxApproved bounds the newcomers that are approved and have not joined.
const maxApproved = 1024

// newcomers are the peers that want to join, as one member knows them. The driver's goroutine owns
// them. An entry is a lease, and the newcomer renews it with its offers.
type newcomers struct {
	approved   map[ID]approval  // newcomers that are admitted when their membership machine asks
	applicants map[ID]applicant // newcomers that have asked for admission
}

// newNewcomers returns empty tables.
func newNewcomers() newcomers {
	return newcomers{approved: make(map[ID]approval), applicants: make(map[ID]applicant)}
}

// joined drops a newcomer that is in the view now.
func (n *newcomers) joined(id ID) {
	delete(n.approved, id)
	delete(n.applicants, id)
}

// note records an approval. It runs in the driver's goroutine.
func (n *newcomers) note(o offer, e Entry) {
	if len(n.approved) < maxApproved {
		n.approved[o.Member.ID] = approval{o.Candidate, e, o.until()}
	}
}

// isApproved reports whether a newcomer may join. It runs in the driver's goroutine.
func (n *newcomers) isApproved(id ID) bool {
	a, ok := n.approved[id]
	return ok && time.Now().Before(a.until)
}

// decision is the answer to an offer that asks for admission, or renews it.
type decision struct {
	err    error    // why the newcomer is not admitted; nil if it is
	coming []Member // other newcomers with which it has to connect
}

// admission decides which newcomers are admitted, and helps them to connect with the members. The
// driver's goroutine owns it. judge and approve are called in other goroutines and let that
// goroutine decide.
type admission struct {
	newcomers
	cfg      *Config // MinPeers
	relay    bool    // this member may use relays
	members  *roster
	launcher *singleLauncher
	out      *sendQueues
	loop     *eventLoop
	network  Network
	dialer   reverseDialer // attempts to connect with newcomers that cannot connect with this member
}

// asked handles a newcomer's request to join, which the machine has received. It admits the
// newcomer if it was approved.
func (a *admission) asked(r member.Request) {
	id := ID(r.Member.ID)
	if !a.isApproved(id) {
		return // the newcomer was not approved, or too long ago; it will ask again
	}
	e := a.approved[id].entry
	r.Member.By, r.Member.Was = member.ID(e.By), member.ID(e.Was)
	a.launcher.admit(a.members, r)
}

// decide calls the function decides in the driver's goroutine. If the function returns nil, decide
// approves the author of the offer. The decision also lists other newcomers.
func (a *admission) decide(o offer, e Entry, decides func() error) decision {
	made, ok := ask(a.loop, func() decision {
		met := a.hostsOf(o.Met)
		a.hear(o, met)
		answer := decision{decides(), a.coming(o, met)}
		if answer.err == nil {
			a.note(o, e)
		}
		return answer
	})
	if !ok {
		return decision{err: fmt.Errorf("%w: closed", ErrNotYet)}
	}
	return made
}

// judge decides whether a newcomer that is level is admitted, and if so approves it.
func (a *admission) judge(o offer, e Entry, judge Judge) decision {
	return a.decide(o, e, func() error {
		a.requestReverseDials(o)
		return a.weigh(o, judge)
	})
}

// approve renews the approval of a newcomer that a member has admitted. It does not if another
// newcomer was admitted meanwhile and the two have not connected.
func (a *admission) approve(o offer, e Entry) decision {
	return a.decide(o, e, func() error { return a.unproven(o) })
}

// weigh decides in the driver's goroutine, so that if two newcomers ask at the same time the second
// is judged together with the first. A newcomer that the job needs in order to go on is admitted
// without asking the Judge.
func (a *admission) weigh(o offer, judge Judge) error {
	x := Application{Candidate: o.Candidate, Near: true}
	// Expired approvals are dropped on the way.
	for id, other := range a.approved {
		switch {
		case !a.isApproved(id):
			delete(a.approved, id)
		case id != o.Member.ID:
			x.Coming = append(x.Coming, other.candidate)
		}
	}
	for _, m := range a.members.view.Members {
		x.Members = append(x.Members, m.ID)
		x.Near = x.Near && m.Beside(o.Member)
	}
	if err := a.unproven(o); err != nil {
		return err
	}
	// A group below MinPeers needs every newcomer.
	if judge == nil || a.members.quorumLost || a.members.staying()+len(x.Coming) < a.cfg.MinPeers {
		return nil
	}
	return judge.Admit(x)
}
