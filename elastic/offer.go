package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elrun/elrun/elastic/wish"
)

// offer is the first request of a newcomer: its identity, its settings, and whether it holds a
// state. It costs a member a few comparisons. A newcomer that is level makes the offer again to
// request admission.
type offer struct {
	Member    Member    `json:"member"`
	State     bool      `json:"state"` // the newcomer has registered a state
	Settings  []Setting `json:"settings"`
	Until     int64     `json:"until,omitempty"`    // last step of the newcomer's first loop of Steps; 0 for none
	Level     bool      `json:"level,omitempty"`    // the newcomer is level and requests admission now
	Admitted  bool      `json:"admitted,omitempty"` // a member has admitted the newcomer
	Candidate Candidate `json:"candidate,omitzero"` // measurements of a newcomer that is level
	Relay     bool      `json:"relay,omitempty"`    // the newcomer may use relays
	// Lease is the time within which the newcomer renews the offer, see minLease.
	Lease     time.Duration `json:"lease,omitempty"`
	Unreached []ID          `json:"unreached,omitempty"` // members and other newcomers that the newcomer cannot reach
	Met       []ID          `json:"met,omitempty"`       // members and other newcomers that the newcomer has reached
	Tried     []byte        `json:"tried,omitempty"`     // reply.Version of the view in which the newcomer has made an offer to all members that it has to reach
	Version   []byte        `json:"version,omitempty"`   // reply.Version of the view that the newcomer knows; empty to request the list of members
}

// reply is a member's answer to an offer. The error texts are for people; an empty text means that
// the case does not apply.
type reply struct {
	Refused string   `json:"refused,omitempty"` // why the job refuses the newcomer, for good
	Wait    string   `json:"wait,omitempty"`    // why the answering member cannot decide now
	Outside bool     `json:"outside,omitempty"` // the answering peer is no member
	Ended   bool     `json:"ended,omitempty"`   // the job is at its end
	Parked  string   `json:"parked,omitempty"`  // why the newcomer is not admitted for now
	CutOff  string   `json:"cut_off,omitempty"` // why the newcomer would be put out again
	Later   string   `json:"later,omitempty"`   // why the admission cannot be decided yet
	Epoch   uint64   `json:"epoch,omitempty"`   // epoch of the present view
	Members []Member `json:"members,omitempty"` // members of the present view
	Coming  []Member `json:"coming,omitempty"`  // other newcomers with which the newcomer has to connect
	Version []byte   `json:"version,omitempty"` // hash of the present view
	Same    bool     `json:"same,omitempty"`    // the newcomer knows the present view: Members is empty
}

// maxReply bounds an encoded reply, in bytes. It is enough for a view of the largest size with
// addresses.
const maxReply = 8 << 20

// requestKind is the first byte of a request, and gives its kind.
type requestKind byte

const (
	requestOffer    requestKind = 'o' // followed by an offer as JSON
	requestTransfer requestKind = 't' // followed by a request of elastic/internal/transfer
)

// requestServer answers the requests of other peers: the offers of newcomers, and requests for the
// state. Its methods are safe for concurrent use.
type requestServer struct {
	cfg          *Config // Entry
	identity     *identity
	registration *registration
	wishes       *wish.Wishes
}

// answer serves a request of another peer, see Network.Serve.
func (r *requestServer) answer(ctx context.Context, from ID, request []byte, w io.Writer) error {
	if len(request) == 0 {
		return errors.New("elastic: empty request")
	}
	body := request[1:]
	switch requestKind(request[0]) {
	case requestOffer:
		var o offer
		if err := json.Unmarshal(body, &o); err != nil {
			return fmt.Errorf("elastic: offer of %s: %w", from.Short(), err)
		}
		return json.NewEncoder(w).Encode(r.consider(from, o))
	case requestTransfer:
		donor := r.registration.registered().donor
		if donor == nil {
			return errors.New("elastic: this member holds no state")
		}
		return donor.Serve(ctx, body, w)
	case requestSave:
		return r.save(ctx, from, body, w)
	}
	return fmt.Errorf("elastic: request of unknown kind %q", request[0])
}

// consider answers an offer, and records the approval of a newcomer that is admitted.
func (r *requestServer) consider(from ID, o offer) reply {
	d, ours := r.identity.current(), r.registration.registered()
	now, _ := d.status.now()
	switch {
	// The network has authenticated from, while the offer only claims an ID.
	case o.Member.ID != from:
		return reply{Refused: fmt.Sprintf("the newcomer calls itself %s, but its connection proves the ID %s", o.Member.ID.Short(), from.Short())}
	case d.report.get().Ended:
		return reply{Wait: "is at the end of the job", Ended: true}
	case now.phase != inside:
		return reply{Wait: "is not a member of the job", Outside: true}
	case !ours.begun:
		return reply{Wait: "has not begun"}
	// Otherwise the newcomer would wait for a state that no member has, or go on without the
	// state of the job.
	case (ours.state != nil) != o.State:
		return reply{Refused: "either the job or the peer has registered a state, and the other has not: run the same program at all peers"}
	}
	why := differ(ours.settings, o.Settings)
	// A program may join before it begins a loop of Steps. Then its offer has no last step to
	// compare.
	if why == "" && ours.first != 0 && o.Until != 0 {
		why = differ([]Setting{stepsSetting(ours.first)}, []Setting{stepsSetting(o.Until)})
	}
	if why != "" {
		return reply{Refused: why}
	}
	// The membership carries the description, so a description that does not fit is refused here.
	if _, err := toMember(o.Member); err != nil {
		return reply{Refused: err.Error()}
	}
	e, err := r.entry(from, now.view)
	switch {
	case errors.Is(err, ErrNotYet):
		return reply{Wait: err.Error()}
	case err != nil:
		return reply{Refused: err.Error()}
	}
	_ = d.ep.Network.Introduce([]Member{o.Member}) // on an error the newcomer cannot be dialled, but it is already connected
	hash := now.view.Hash()
	answer := reply{Epoch: now.view.Epoch, Version: hash[:], Same: bytes.Equal(hash[:], o.Version)}
	if !answer.Same {
		answer.Members = d.ep.complete(now.view.Members)
	}
	// Only a level newcomer is judged: before that its measurements do not exist.
	if o.Level {
		judge, _ := ours.state.(Judge)
		answer.decided(d.admitter.judge(o, e, judge))
	} else if o.Admitted {
		answer.Coming = d.admitter.approve(o, e).coming
	}
	return answer
}

// entry returns the right by which a newcomer joins. Members of the view v need none.
func (r *requestServer) entry(id ID, v View) (Entry, error) {
	if r.cfg.Entry == nil || v.Rank(id) >= 0 {
		return Entry{}, nil
	}
	return r.cfg.Entry(id)
}

// decided fills in the answer to a request for admission.
func (r *reply) decided(d decision) {
	r.Coming = d.coming
	switch {
	case errors.Is(d.err, ErrNotYet):
		r.Later = d.err.Error()
	case errors.Is(d.err, errUnreachable):
		r.CutOff = d.err.Error()
	case d.err != nil:
		r.Parked = d.err.Error()
	}
}
