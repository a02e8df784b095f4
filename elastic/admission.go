package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Candidate is what a peer that is level tells of itself when it asks to be let in. What
// is zero is not known.
type Candidate struct {
	Forced    bool          `json:"forced,omitempty"`    // it is to be let in whatever it brings
	Speed     int64         `json:"speed,omitempty"`     // of its computing, in a unit of the State's own
	Fixed     time.Duration `json:"fixed,omitempty"`     // part of its step that does not depend on its share
	Most      int           `json:"most,omitempty"`      // bound of its share, in a unit of the State's own; 0 for none
	Bandwidth int64         `json:"bandwidth,omitempty"` // bytes a second at which the state came to it
	Delay     time.Duration `json:"delay,omitempty"`     // of a question to a member and its answer, the shortest seen
}

// Application is what a Judge decides about.
type Application struct {
	Candidate
	// Coming are others that this member has let in and that are in no view yet.
	Coming []Candidate
	// Members are those of the present view in rank order.
	Members []ID
	// Near: the peer and all members are on one host, so that its Bandwidth and Delay,
	// which are those of the network, say nothing.
	Near bool
}

// Judge is a State that decides which peers may join. A group whose State is none lets
// in every peer that has a right to join (Config.Entry) and the job's settings.
type Judge interface {
	State
	// Admit returns nil if the peer may join now. ErrNotYet, wrapped, says that this
	// cannot be told yet: the peer asks again soon. Any other error parks the peer: it is
	// told the text, follows the updates of the job, and asks again, now and then and when
	// a member is gone. Unlike the other methods it is called at any time, from a goroutine
	// of the group, which it must not hold up.
	Admit(a Application) error
}

// Trier is a State that measures how fast this peer would be.
type Trier interface {
	State
	// Trial computes a little for nothing, with the state of the job, which stays as it
	// is. It is called before this peer asks to be let in, each time. It ends early with
	// ctx. Another error is final.
	Trial(ctx context.Context) (Candidate, error)
}

// ErrNotYet: whether a peer may join cannot be told at the moment.
var ErrNotYet = errors.New("cannot be told yet")

// errApart: a peer that wants to join and a member cannot reach each other.
var errApart = errors.New("cannot connect: let one of them listen where the other can reach it, or allow a relay")

// approval lets a peer in when its machine asks. It ends by itself: a peer that still
// wants to come has asked again before.
type approval struct {
	candidate Candidate
	entry     Entry
	at        time.Time
}

// approvalTerm is how long an approval holds.
const approvalTerm = 5 * time.Second

// maxApproved bounds the peers that have been approved and have not joined.
const maxApproved = 1024

// approve lets a peer in when it asks.
func (k *keeper) approve(o offer, e Entry) {
	k.do(func() { k.note(o, e) })
}

// note keeps an approval, in the keeper's goroutine.
func (k *keeper) note(o offer, e Entry) {
	if len(k.approved) < maxApproved {
		k.approved[o.Member.ID] = approval{o.Candidate, e, time.Now()}
	}
}

// isApproved reports whether a peer may join. It is called by the keeper's goroutine.
func (k *keeper) isApproved(id ID) bool {
	a, ok := k.approved[id]
	return ok && time.Since(a.at) < approvalTerm
}

// judge decides whether a peer that is level is let in, and approves it if so.
func (k *keeper) judge(o offer, e Entry, judge Judge) error {
	verdict := make(chan error, 1)
	k.do(func() {
		err := k.weigh(o, judge)
		if err == nil {
			k.note(o, e)
		}
		verdict <- err
	})
	select {
	case err := <-verdict:
		return err
	case <-k.ctx.Done():
		return fmt.Errorf("%w: closed", ErrNotYet)
	}
}

// weigh decides in the keeper's goroutine, so that of two peers that ask at once the
// second is judged with the first. A peer that the job needs to go on is not judged.
func (k *keeper) weigh(o offer, judge Judge) error {
	a := Application{Candidate: o.Candidate, Near: true}
	for id, other := range k.approved {
		switch {
		case !k.isApproved(id):
			delete(k.approved, id)
		case id != o.Member.ID:
			a.Coming = append(a.Coming, other.candidate)
		}
	}
	for _, m := range k.view.Members {
		a.Members = append(a.Members, m.ID)
		a.Near = a.Near && m.Beside(o.Member)
	}
	if !k.lacking {
		if err := k.apart(o); err != nil {
			return err
		}
	}
	if judge == nil || k.lacking || k.staying()+len(a.Coming) < k.cfg.MinPeers {
		return nil
	}
	return judge.Admit(a)
}

// apart returns why a peer would only be put out again: it does not reach a member that is
// there, as far as this one knows.
func (k *keeper) apart(o offer) error {
	for _, m := range k.view.Members {
		if m.ID == k.ep.Self.ID || !slices.Contains(o.Unreached, m.ID) {
			continue
		}
		if p := k.peerOf(m.ID); p.suspected != "" || p.down || p.beat.Leaving {
			continue
		}
		where := ""
		if m.Host != "" {
			where = " on " + m.Host
		}
		return fmt.Errorf("it and %s%s %w", m.ID.Short(), where, errApart)
	}
	return nil
}

// staying counts the members that are not about to leave or to be put out.
func (k *keeper) staying() int {
	n := 0
	for _, m := range k.view.Members {
		p := k.peers[m.ID]
		if p == nil || p.suspected == "" && !p.beat.Leaving {
			n++ // this member itself is none of its peers
		}
	}
	return n
}
