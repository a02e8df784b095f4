package elastic

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

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
func (a *admission) hostsOf(met []ID) map[string]bool {
	hosts := make(map[string]bool, len(met))
	for _, id := range met {
		if rank := a.members.view.Rank(id); rank >= 0 {
			hosts[a.members.view.Members[rank].hostKey()] = true
		} else if other, ok := a.applicants[id]; ok {
			hosts[other.member.hostKey()] = true
		}
	}
	return hosts
}

// unproven returns an error if the author of an offer would be in a pair that is not proven. The
// error is errUnreachable if the two peers cannot connect, as far as this member knows, and
// otherwise ErrNotYet. A newcomer that the job needs in order to go on gets no error.
func (a *admission) unproven(o offer) error {
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
	for id := range a.approved {
		other, ok := a.applicants[id]
		switch {
		case !ok || id == o.Member.ID || !a.isApproved(id) || o.linked(met, other):
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

// reverseDial is the body of a controlReverseDial: the newcomer to dial, described as in
// member.Member.
type reverseDial struct {
	ID   ID
	Info string
}

// append appends the encoded control message of the request to b.
func (r reverseDial) append(b []byte) []byte {
	b = append(b, byte(controlReverseDial), byte(len(r.ID))) // member.MaxID fits in a byte
	return append(append(b, r.ID...), r.Info...)
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
	// reverseDialPatience bounds the time of an attempt. The newcomer's later requests start
	// further attempts.
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
