package elastic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// Candidate describes a newcomer that is level (its State has the members' last step) and requests
// admission. The zero value of a field means unknown.
type Candidate struct {
	Forced    bool          `json:"forced,omitempty"`    // admit the newcomer regardless of its speed
	Speed     int64         `json:"speed,omitempty"`     // speed of computing, in a unit that the State defines
	Fixed     time.Duration `json:"fixed,omitempty"`     // the part of the newcomer's step time that does not depend on its share
	Most      int           `json:"most,omitempty"`      // upper bound of the newcomer's share, in a unit that the State defines; 0 for no bound
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
	// Near is true if the newcomer and all members are on one host. Bandwidth and Delay then do not
	// describe a network.
	Near bool
}

// Judge is a State that decides which peers may join. Without a Judge a group admits every peer
// that has a right to join (Config.Entry) and whose settings equal the job's.
type Judge interface {
	State
	// Admit returns nil if the newcomer may join now. An error that is ErrNotYet means that the
	// decision is not possible yet; the newcomer asks again soon. Any other error parks the
	// newcomer: the newcomer receives the error's text, follows the updates of the job, and asks
	// again at intervals and when a member is gone. Unlike the methods of State, Admit is called at
	// any time, in a goroutine of the group, and must not block.
	Admit(a Application) error
}

// Trier is a State that can measure the speed of this peer before this peer joins.
type Trier interface {
	State
	// Trial computes a part of a step with the state of the job, to measure this peer's speed. It
	// discards the result and leaves the state unchanged. The group calls Trial before each request
	// for admission. Trial returns early with an error when ctx ends. Any other error ends the
	// attempt to join, and Next returns that error.
	Trial(ctx context.Context) (Candidate, error)
}

// ErrNotYet means that the decision whether a peer may join is not possible at the moment.
var ErrNotYet = errors.New("cannot be decided yet")

// errUnreachable means that a newcomer and a member cannot connect to each other.
var errUnreachable = errors.New("cannot connect: make one of the two reachable from the other, or allow a relay")

// approval is one member's permission for a newcomer to join. The member admits a newcomer only if
// it holds an approval for the newcomer when the newcomer's membership machine requests admission.
// An approval is a lease: it expires after offer.Lease, and each later offer of the newcomer renews
// it.
type approval struct {
	candidate Candidate
	entry     Entry
	until     time.Time
}

// minLease and maxLease bound the lease that a newcomer can choose. A newcomer chooses the duration
// of two rounds of offers, so that one late offer does not end the lease.
const (
	minLease = 5 * time.Second
	maxLease = 2 * maxRound
)

// until returns the end of the lease for which an offer asks.
func (o offer) until() time.Time { return time.Now().Add(min(max(o.Lease, minLease), maxLease)) }

// maxApproved bounds the number of approved newcomers that are in no view yet.
const maxApproved = 1024

// newcomers holds the peers that want to join, according to the offers that one member has
// received. The driver's goroutine owns it. Each entry of a map is a lease that the newcomer's
// offers renew.
type newcomers struct {
	approved   map[ID]approval  // newcomers that are admitted when their membership machine requests it
	applicants map[ID]applicant // newcomers that have requested admission
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

// isApproved reports whether a newcomer has an approval that has not expired. It runs in the
// driver's goroutine.
func (n *newcomers) isApproved(id ID) bool {
	a, ok := n.approved[id]
	return ok && time.Now().Before(a.until)
}

// decision is a member's answer to an offer that requests admission or renews an approval.
type decision struct {
	err    error    // why the newcomer is not admitted; nil if the newcomer is admitted
	coming []Member // other newcomers with which the newcomer has to connect
}

// admitter decides which newcomers are admitted, and helps them to connect with the members. The
// driver's goroutine owns it. Other goroutines call judge and approve, which run the decision in
// the driver's goroutine.
type admitter struct {
	newcomers newcomers
	cfg       *Config // MinPeers
	relay     bool    // this member may use relays
	members   *roster
	launcher  *singleLauncher
	out       *sendQueues
	loop      *eventLoop
	network   Network
	dialer    reverseDialer // attempts to connect with newcomers that cannot connect with this member
}

// asked handles a newcomer's request to join, which the membership machine has received. It admits
// the newcomer if the newcomer has a valid approval.
func (a *admitter) asked(r member.Request) {
	id := ID(r.Member.ID)
	if !a.newcomers.isApproved(id) {
		return // the newcomer has no approval, or the approval has expired; the newcomer repeats the request
	}
	e := a.newcomers.approved[id].entry
	r.Member.By, r.Member.Was = member.ID(e.By), member.ID(e.Was)
	a.launcher.admit(a.members, r)
}

// decide calls the function decides in the driver's goroutine. If the function returns nil, decide
// approves the author of the offer. The decision also lists other newcomers.
func (a *admitter) decide(o offer, e Entry, decides func() error) decision {
	made, ok := ask(a.loop, func() decision {
		met := a.hostsOf(o.Met)
		a.newcomers.hear(o, met)
		answer := decision{decides(), a.newcomers.coming(o, met)}
		if answer.err == nil {
			a.newcomers.note(o, e)
		}
		return answer
	})
	if !ok {
		return decision{err: fmt.Errorf("%w: closed", ErrNotYet)}
	}
	return made
}

// judge decides whether a newcomer that is level is admitted, and if so approves it.
func (a *admitter) judge(o offer, e Entry, judge Judge) decision {
	return a.decide(o, e, func() error {
		a.requestReverseDials(o)
		return a.weigh(o, judge)
	})
}

// approve renews the approval of a newcomer that a member has admitted. It refuses if another
// newcomer was admitted meanwhile and the two newcomers have not connected.
func (a *admitter) approve(o offer, e Entry) decision {
	return a.decide(o, e, func() error { return a.unproven(o) })
}

// weigh decides whether a newcomer that is level is admitted. It runs in the driver's goroutine: if
// two newcomers ask at the same time, the Judge sees the first in Coming when it judges the second.
// A newcomer without which the job cannot go on is admitted without asking the Judge.
func (a *admitter) weigh(o offer, judge Judge) error {
	x := Application{Candidate: o.Candidate, Near: true}
	// The loop also drops expired approvals.
	for id, other := range a.newcomers.approved {
		switch {
		case !a.newcomers.isApproved(id):
			delete(a.newcomers.approved, id)
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

// The members of a view connect with each other, so a newcomer that cannot connect with some member
// would only be put out again. A member therefore admits a newcomer only when each new pair of
// hosts is proven. A pair is proven if a peer on one of the two hosts has made an offer to a peer
// on the other host and got the reply.
//
//	newcomer and member    the newcomer's offers, see reach. A member that the newcomer cannot
//	                       reach is asked to connect with it: a router may let only one of the two
//	                       through
//	newcomer and newcomer  the replies to their offers introduce them to each other
//
// Peers of one host need no proof, nor do two peers that may both use a relay. Even if the hosts
// are proven, a newcomer is not admitted while it cannot connect with one of the peers. Of two
// newcomers that cannot connect with each other the second is not admitted.

// applicant is a newcomer whose last request for admission is not older than its lease.
type applicant struct {
	member Member
	relay  bool            // as in its offer
	met    []ID            // as in its offer
	hosts  map[string]bool // hosts of the peers in met, see hostsOf
	until  time.Time       // end of the newcomer's lease
}

// maxComing bounds the newcomers that a reply introduces. Others follow in later replies.
const maxComing = 64

// hear records that a newcomer wants to join, and drops newcomers whose lease has ended. The
// argument met has the hosts with which the newcomer has connected.
func (n *newcomers) hear(o offer, met map[string]bool) {
	maps.DeleteFunc(n.applicants, func(_ ID, a applicant) bool { return !time.Now().Before(a.until) })
	if _, known := n.applicants[o.Member.ID]; known || len(n.applicants) < maxApproved {
		n.applicants[o.Member.ID] = applicant{o.Member, o.Relay, o.Met, met, o.until()}
	}
}

// coming returns other newcomers with which the author of an offer has to connect, one of each
// host, sorted by ID. A newcomer that the author cannot reach is listed only if no other newcomer
// of the same host is left. The argument met has the hosts with which the author has connected.
func (n *newcomers) coming(o offer, met map[string]bool) []Member {
	chosen := make(map[string]Member)
	better := func(a, b Member) bool {
		if cut := slices.Contains(o.Unreached, a.ID); cut != slices.Contains(o.Unreached, b.ID) {
			return !cut
		}
		return a.ID < b.ID
	}
	for id, a := range n.applicants {
		if id == o.Member.ID || o.linked(met, a) {
			continue
		}
		if m, ok := chosen[a.member.hostKey()]; !ok || better(a.member, m) {
			chosen[a.member.hostKey()] = a.member
		}
	}
	all := slices.SortedFunc(maps.Values(chosen), func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return all[:min(len(all), maxComing)]
}

// linked reports whether the pair of an offer's author and another newcomer is proven. The argument
// met has the hosts with which the author has connected.
func (o offer) linked(met map[string]bool, a applicant) bool {
	switch {
	case o.Member.Beside(a.member), o.Relay && a.relay, slices.Contains(a.met, o.Member.ID):
		return true
	case slices.Contains(o.Unreached, a.member.ID):
		return false
	}
	return met[a.member.hostKey()] || a.hosts[o.Member.hostKey()]
}

// hostsOf returns the hosts of peers that a newcomer has reached, by Member.hostKey. Peers that
// this member does not know are ignored.
func (a *admitter) hostsOf(met []ID) map[string]bool {
	hosts := make(map[string]bool, len(met))
	for _, id := range met {
		if rank := a.members.view.Rank(id); rank >= 0 {
			hosts[a.members.view.Members[rank].hostKey()] = true
		} else if other, ok := a.newcomers.applicants[id]; ok {
			hosts[other.member.hostKey()] = true
		}
	}
	return hosts
}

// unproven returns an error if the author of an offer would be in a pair that is not proven. The
// error is errUnreachable if the two peers cannot connect, as far as this member knows, and
// otherwise ErrNotYet. A newcomer that the job needs in order to go on gets no error.
func (a *admitter) unproven(o offer) error {
	if a.members.quorumLost {
		return nil
	}
	var wait error
	met, now := a.hostsOf(o.Met), a.members.view.Hash()
	// The list o.Met is bounded, so in a group of very many hosts it may lack some. Then o.Tried
	// shows that the author has made an offer to all members that it has to reach.
	all := bytes.Equal(o.Tried, now[:])
	for _, m := range a.members.view.Members {
		switch {
		case m.ID == a.members.self.ID:
		case slices.Contains(o.Unreached, m.ID):
			if a.members.present(m.ID) {
				return errCutOff(m)
			}
		case !all && !(o.Relay && a.relay) && !m.Beside(o.Member) && !met[m.hostKey()]:
			wait = errUnmet(m)
		}
	}
	for id := range a.newcomers.approved {
		other, ok := a.newcomers.applicants[id]
		switch {
		case !ok || id == o.Member.ID || !a.newcomers.isApproved(id) || o.linked(met, other):
		case slices.Contains(o.Unreached, id):
			return errCutOff(other.member)
		default:
			wait = errUnmet(other.member)
		}
	}
	return wait
}

// errCutOff returns the error that a newcomer cannot connect with the peer m.
func errCutOff(m Member) error {
	where := ""
	if m.Host != "" {
		where = " on " + m.Host
	}
	return fmt.Errorf("the newcomer and %s%s %w", m.ID.Short(), where, errUnreachable)
}

// errUnmet returns the error that a newcomer has not tried yet to connect with the peer m.
func errUnmet(m Member) error {
	return fmt.Errorf("%w: the newcomer has not yet tried to connect with %s", ErrNotYet, m.ID.Short())
}

// requestReverseDials asks the members that a newcomer cannot reach to dial the newcomer.
func (a *admitter) requestReverseDials(o offer) {
	m, err := toMember(o.Member)
	if err != nil {
		return
	}
	for _, id := range o.Unreached {
		if a.members.isMember(id) && a.members.present(id) {
			a.out.send(id, reverseDial{o.Member.ID, m.Info}.append(nil))
		}
	}
}

const (
	// maxReverseDials bounds the newcomers with which a member tries to connect at a time.
	maxReverseDials = 16
	// reverseDialPatience bounds the time of an attempt. The newcomer's later requests start
	// further attempts.
	reverseDialPatience = 5 * time.Second
)

// dialBack connects with a newcomer that cannot connect with this member, in the background. The
// newcomer then proves its right to join over that connection.
func (a *admitter) dialBack(c reverseDial) {
	m := fromMember(member.Member{ID: member.ID(c.ID), Info: c.Info})
	if !a.members.isMember(m.ID) && m.ID != a.members.self.ID {
		a.dialer.dial(a.loop, a.network, m)
	}
}

// reverseDialer holds the attempts to connect with newcomers. The driver's goroutine owns it; each
// attempt has a goroutine of its own, which ends with the loop.
type reverseDialer struct {
	running map[ID]bool // the newcomers with which an attempt is under way
	work    sync.WaitGroup
}

// dial begins an attempt, unless an attempt with the same newcomer or too many attempts are under
// way. After an error the newcomer's next offer still names this member as unreached, which leads
// to another attempt.
func (r *reverseDialer) dial(l *eventLoop, network Network, m Member) {
	if r.running[m.ID] || len(r.running) >= maxReverseDials {
		return
	}
	r.running[m.ID] = true
	r.work.Go(func() {
		defer l.do(func() { delete(r.running, m.ID) })
		ctx, cancel := context.WithTimeout(l.ctx, reverseDialPatience)
		defer cancel()
		if network.Introduce([]Member{m}) == nil {
			_ = network.Send(ctx, m.ID, heartbeat{}.append(nil)) // the newcomer's next offer shows whether the attempt succeeded
		}
	})
}
