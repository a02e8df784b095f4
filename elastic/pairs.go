package elastic

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// The members of a view connect with each other, so a newcomer that cannot connect with all of them
// would only be put out again. A member therefore admits a newcomer only when each new pair is
// proven: one peer of the pair has made the other an offer and got the reply.
//
//	newcomer and member    the newcomer's offers, see joiner. A member that the newcomer cannot
//	                       reach is asked to connect with it: a router may let only one of the two
//	                       through
//	newcomer and newcomer  the replies to their offers introduce them to each other
//
// Peers of one host need no proof, nor do two peers that may use a relay. Of two newcomers that
// cannot connect the second waits outside.

// applicant is a newcomer that has asked for admission lately.
type applicant struct {
	member Member
	relay  bool // as in its offer
	met    []ID // as in its offer
	at     time.Time
}

// maxComing bounds the newcomers that a reply introduces. Others follow in later replies.
const maxComing = 64

// hear records that a newcomer wants to join, and drops newcomers that have not asked lately.
func (n *newcomers) hear(o offer) {
	maps.DeleteFunc(n.applicants, func(_ ID, a applicant) bool { return time.Since(a.at) >= approvalTerm })
	if _, known := n.applicants[o.Member.ID]; known || len(n.applicants) < maxApproved {
		n.applicants[o.Member.ID] = applicant{o.Member, o.Relay, o.Met, time.Now()}
	}
}

// coming returns other newcomers with which the author of an offer has to connect, sorted by ID.
func (n *newcomers) coming(o offer) (all []Member) {
	for id, a := range n.applicants {
		if id != o.Member.ID && !o.linked(a) {
			all = append(all, a.member)
		}
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return all[:min(len(all), maxComing)]
}

// linked reports whether the pair of an offer's author and another newcomer is proven.
func (o offer) linked(a applicant) bool {
	return o.Member.Beside(a.member) || o.Relay && a.relay ||
		slices.Contains(o.Met, a.member.ID) || slices.Contains(a.met, o.Member.ID)
}

// unproven returns an error if the author of an offer would be in a pair that is not proven. The
// error is errUnreachable if the two peers cannot connect, as far as this member knows, and
// otherwise ErrNotYet. A newcomer that the job needs in order to go on gets no error.
func (a *admission) unproven(o offer) error {
	if a.members.quorumLost {
		return nil
	}
	var wait error
	last := -1 // the rank up to which the author has tried all
	for _, id := range o.Tried {
		last = max(last, a.members.view.Rank(id))
	}
	for rank, m := range a.members.view.Members {
		switch {
		case m.ID == a.members.self.ID:
		case slices.Contains(o.Unreached, m.ID):
			if a.members.present(m.ID) {
				return errCutOff(m)
			}
		// New members have the last ranks, so the author may not have heard of this member yet.
		case rank > last && !(o.Relay && a.relay) && !m.Beside(o.Member) && !slices.Contains(o.Met, m.ID):
			wait = errUnmet(m)
		}
	}
	for id := range a.approved {
		other, ok := a.applicants[id]
		switch {
		case !ok || id == o.Member.ID || !a.isApproved(id) || o.linked(other):
		case slices.Contains(o.Unreached, id):
			return errCutOff(other.member)
		default:
			wait = errUnmet(other.member)
		}
	}
	return wait
}

// errCutOff says that a newcomer cannot connect with a peer.
func errCutOff(m Member) error {
	where := ""
	if m.Host != "" {
		where = " on " + m.Host
	}
	return fmt.Errorf("it and %s%s %w", m.ID.Short(), where, errUnreachable)
}

// errUnmet says that a newcomer has not tried yet to connect with a peer.
func errUnmet(m Member) error {
	return fmt.Errorf("%w: the newcomer has not tried yet to connect with %s", ErrNotYet, m.ID.Short())
}

// requestReverseDials asks the members that a newcomer cannot reach to connect with it.
func (a *admission) requestReverseDials(o offer) {
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

// reverseDial is the body of a controlReverseDial: the newcomer to connect with, in the form of the
// membership machine.
type reverseDial struct {
	ID   ID
	Info string
}

// append appends the encoded control message of a call to b.
func (c reverseDial) append(b []byte) []byte {
	b = append(b, byte(controlReverseDial), byte(len(c.ID))) // member.MaxID fits in a byte
	return append(append(b, c.ID...), c.Info...)
}

// decodeReverseDial decodes a reverseDial from the bytes after the kind.
func decodeReverseDial(b []byte) (reverseDial, error) {
	if len(b) == 0 || b[0] == 0 || b[0] > member.MaxID || len(b)-1 < int(b[0]) || len(b)-1-int(b[0]) > member.MaxInfo {
		return reverseDial{}, fmt.Errorf("request to dial: %w", errControl)
	}
	n := 1 + int(b[0])
	return reverseDial{ID(b[1:n]), string(b[n:])}, nil
}

const (
	// maxReverseDials bounds the newcomers with which a member tries to connect at a time.
	maxReverseDials = 16
	// reverseDialPatience bounds the time of an attempt. The newcomer asks again while it waits.
	reverseDialPatience = 5 * time.Second
)

// dialBack connects with a newcomer that cannot connect with this member, in the background. The
// newcomer then proves its right to join over that connection.
func (a *admission) dialBack(c reverseDial) {
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

// dial begins an attempt, unless there is one already or there are too many. On any error the
// newcomer's next offer, which still names this member as unreached, leads to another attempt.
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
			_ = network.Send(ctx, m.ID, heartbeat{}.append(nil)) // the newcomer's offer shows whether it worked
		}
	})
}
