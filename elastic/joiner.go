package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/internal/transfer"
	"github.com/elrun/elrun/event"
)

// joiner lets a newcomer join a running job. One of its goroutines repeatedly makes the offer to
// the present members (makeOffers). Meanwhile the goroutine of Next copies the state.
type joiner struct {
	group      *Group
	d          *driver
	accepted   chan struct{} // closed when the first member has accepted the offer
	introduced chan struct{} // capacity 1: a reply has introduced another newcomer

	mu    sync.Mutex
	reach reach // the members and the newcomers that this peer connects with
	// answerTime is a decaying maximum of the times that connected members take to answer an offer.
	// Each answer replaces it by the larger one of the answer's time and half the old value.
	answerTime time.Duration
	epoch      uint64        // latest epoch in a reply
	gone       chan struct{} // closed when a member is gone, and then replaced
	shortest   time.Duration // shortest round trip so far; 0 before the first
	admitted   *Candidate    // the measurements with which a member admitted this peer; nil if none has
	first      sync.Once     // closes accepted once
}

// newJoiner returns a joiner for the identity of d.
func newJoiner(g *Group, d *driver) *joiner {
	return &joiner{group: g, d: d, accepted: make(chan struct{}), introduced: make(chan struct{}, 1), gone: make(chan struct{}),
		reach: newReach(d.ep.Self, d.ep.Relay)}
}

// join joins the job: it makes the offer, copies the state and requests admission. It returns nil
// when this peer is in a view.
func (j *joiner) join(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	// Defers run in reverse order: cancel ends the goroutines for which Wait waits.
	defer looking.Wait()
	defer cancel(nil)
	// The error of makeOffers becomes the cause of ctx, and so the error of join.
	looking.Go(func() { cancel(j.makeOffers(ctx)) })
	looking.Go(func() { j.meet(ctx) })
	looking.Go(func() {
		select {
		case err := <-j.group.orders.reason:
			cancel(err)
		case <-ctx.Done():
		}
	})
	select {
	case <-j.accepted:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The copy ends as soon as this peer is not outside any more: it is in a view, fenced or
	// closed.
	inView, stop := j.d.status.while(ctx, func(s status) bool { return s.phase == outside })
	defer stop()
	moved, err := j.copyAndFollow(inView)
	// An error of apply after the end of inView is only a consequence of that end.
	if err != nil && inView.Err() == nil {
		return err
	}
	<-inView.Done()
	if s, _ := j.d.status.now(); s.phase != outside {
		j.d.emit(s.view.Epoch, event.Join{Who: j.d.ep.Self.ID.Short(), Reason: "level", Bytes: moved, MS: milliseconds(time.Since(begun))})
		return nil
	}
	return context.Cause(ctx)
}

// makeOffers makes the offer to all known members, round after round, until ctx ends. It returns the
// reason why this peer cannot join.
func (j *joiner) makeOffers(ctx context.Context) error {
	now := time.Now()
	o := &offerRounds{joiner: j, answers: make(chan answered), underWay: make(map[ID]time.Time), begun: now, widened: now,
		last: errors.New("no member is known")}
	ctx, cancel := context.WithCancel(ctx)
	defer o.asking.Wait()
	defer cancel()
	return o.run(ctx)
}

// contacts returns the peers to ask first: the targets among the members of the latest known view.
// If no member has replied in the last round, the peers that the newcomer was given as contacts and
// the members that an earlier identity knew are added. Contacts may be newcomers themselves, to
// which a newcomer cannot prove its right to join: each attempt costs both peers a handshake. So
// each round without a reply adds only a few more contacts.
func (j *joiner) contacts(unheard int) []Member {
	j.mu.Lock()
	all := j.reach.targets()
	j.mu.Unlock()
	if unheard == 0 && len(all) > 0 {
		return all
	}
	var more []Member
	if listed := j.group.cfg.Contacts; listed != nil {
		more = listed()
	}
	more = append(more, j.group.identity.known()...)
	return append(all, more[:min(len(more), firstContacts<<(2*min(unheard, 10)))]...)
}

// offer returns the offer of a regular round. If a member has admitted this peer, the offer says
// so.
func (j *joiner) offer() offer {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.admitted == nil {
		return offer{}
	}
	return offer{Admitted: true, Candidate: *j.admitted}
}

// offerTo makes the offer to one member.
func (j *joiner) offerTo(ctx context.Context, m Member, o offer) (reply, error) {
	if err := j.d.ep.Network.Introduce([]Member{m}); err != nil {
		return reply{}, err
	}
	return j.deliver(ctx, m.ID, o)
}

// deliver makes the offer to a peer that the network knows. It fills in the fields that all offers
// have in common.
func (j *joiner) deliver(ctx context.Context, to ID, o offer) (reply, error) {
	j.mu.Lock()
	patience, connected := j.reach.patience(to), j.reach.met(to)
	o.Lease = 2 * j.period()
	j.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stop := context.AfterFunc(j.d.loop.ctx, cancel)
	defer stop()
	o.Member, o.State, o.Settings = j.d.ep.self(), j.group.held.state != nil, j.group.held.settings
	o.Until, o.Relay = j.group.held.first, j.d.ep.Relay
	begun := time.Now()
	j.mu.Lock()
	j.reach.describe(&o, begun)
	j.mu.Unlock()
	r, err := propose(ctx, j.d.ep, to, o)
	took := time.Since(begun)
	j.mu.Lock()
	defer j.mu.Unlock()
	// note decides whether the peer counts as cut off: at once if no process listens there, after
	// one or two offers without an answer in time, and never after another error.
	gone := err != nil && errors.Is(err, ErrGone)
	late := !gone && err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	j.reach.note(to, gone, late)
	if connected && (err == nil || late) {
		j.answerTime = max(took, j.answerTime/2)
	}
	if err == nil && !r.Outside && (j.shortest == 0 || took < j.shortest) {
		j.shortest = took
	}
	return r, err
}

// propose sends an offer to a member and returns its reply.
func propose(ctx context.Context, ep Endpoint, to ID, o offer) (reply, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return reply{}, fmt.Errorf("make an offer: %w", err)
	}
	answer, err := ep.Network.Request(ctx, to, append([]byte{byte(requestOffer)}, body...))
	if err != nil {
		return reply{}, fmt.Errorf("ask %s: %w", to.Short(), err)
	}
	defer answer.Close()
	// A longer reply is cut off, and then fails to decode.
	b, err := io.ReadAll(io.LimitReader(answer, maxReply))
	if err != nil {
		return reply{}, fmt.Errorf("ask %s: %w", to.Short(), err)
	}
	return decodeReply(b)
}

// decodeReply decodes a reply. A reply without any content is an error.
func decodeReply(b []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return reply{}, fmt.Errorf("answer to an offer: %w", err)
	}
	if r.Refused == "" && r.Wait == "" && !r.Same && len(r.Members) == 0 {
		return reply{}, errors.New("answer to an offer: the answer is empty")
	}
	return r, nil
}

// period returns the time between two rounds of an accepted newcomer. The caller holds mu.
func (j *joiner) period() time.Duration {
	return min(max(minRound, roundFactor*j.answerTime), maxRound)
}

// met records the members and the other newcomers that a reply names. It reports a departure if an
// earlier reply named a member that this reply does not name. Replies may overtake each other, so
// only a reply of a later view shows a departure.
func (j *joiner) met(r reply) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.reach.hear(r.Coming, time.Now()) {
		select {
		case j.introduced <- struct{}{}:
		default:
		}
	}
	if r.Same {
		return
	}
	lost := slices.ContainsFunc(j.reach.members, func(m Member) bool {
		return !slices.ContainsFunc(r.Members, func(o Member) bool { return o.ID == m.ID })
	})
	// Without the lost member the job may need this peer, so a parked peer requests admission again
	// at once.
	if lost && r.Epoch > j.epoch {
		close(j.gone)
		j.gone = make(chan struct{})
	}
	j.reach.members, j.reach.version, j.epoch = r.Members, r.Version, max(j.epoch, r.Epoch)
}

// departure returns a channel that is closed when a reply reports that a member is gone.
func (j *joiner) departure() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gone
}

// delay returns the shortest round trip of a request so far, an estimate of the latency.
func (j *joiner) delay() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.shortest
}

// meet connects with other newcomers until ctx ends: at once when a reply has introduced some, and
// every minRound with the newcomers that were not reached.
func (j *joiner) meet(ctx context.Context) {
	again := time.NewTicker(minRound)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-j.introduced:
		case <-ctx.Done():
			return
		}
		j.mu.Lock()
		all := j.reach.unmet()
		j.mu.Unlock()
		if len(all) == 0 || j.d.ep.vouch(all) != nil {
			continue // a newcomer has given an invalid address
		}
		inParts(all, func(m Member) { _, _ = j.deliver(ctx, m.ID, offer{}) })
	}
}

// inParts calls f for all members, for maxOffers of them at a time.
func inParts(all []Member, f func(Member)) {
	for some := range slices.Chunk(all, maxOffers) {
		var calls sync.WaitGroup
		for _, m := range some {
			calls.Go(func() { f(m) })
		}
		calls.Wait()
	}
}

// followedDonors is the number of donors that keep updates for a newcomer that follows the job: one
// donor sends the updates, and the other can replace it. More donors would cost more requests: the
// newcomer sends each donor a request every few seconds, and many newcomers may ask few members.
const followedDonors = 2

// copyAndFollow copies the state of the job, if the job has one, and follows the updates that are
// committed meanwhile, until inView ends. As soon as this peer has caught up it requests admission.
// copyAndFollow returns the number of bytes of state and updates received.
func (j *joiner) copyAndFollow(inView context.Context) (moved int64, err error) {
	g := j.group
	f := &follower{joiner: j, inView: inView, src: &rated{Source: networkSource{j.d.ep.Network}},
		opts: transfer.Options{Self: string(j.d.ep.Self.ID), Donors: func() []string { return j.donors(true) }, MaxDonors: followedDonors}}
	if g.held.state == nil {
		return 0, f.run()
	}
	// inView ends when this peer is in a view: the session then brings this peer level.
	many := f.opts
	// MaxDonors 0 means the default number of donors: with more donors the copy is faster, and the
	// majority of their hashes decides which state is right.
	many.Donors, many.MaxDonors = func() []string { return j.donors(false) }, 0
	snap, err := transfer.Fetch(inView, f.src, many)
	if err != nil {
		return 0, fmt.Errorf("copy the state: %w", err)
	}
	err = transfer.Keep(inView, f.src, many, snap.Step, func() error { return g.held.install(snap.Reader(), false) })
	if err != nil {
		return 0, err
	}
	j.nameOdd(snap)
	// If the state cannot replay updates, the session copies the whole state once more.
	if snap.Replays {
		f.replayer, _ = g.held.state.(Replayer)
	}
	f.moved, f.copied = snap.Bytes, snap.Elapsed
	err = f.run()
	return f.moved, err
}

// nameOdd logs the donors whose hashes of the state differ from the majority's hashes, and the
// donors that sent a chunk whose content does not match the majority's hash.
func (j *joiner) nameOdd(snap *transfer.Snapshot) {
	for _, forger := range snap.Forged {
		j.d.emit(0, event.Forged{Who: ID(forger).Short(), Reason: "a chunk has another hash than most members report"})
	}
	if a, ok := j.group.held.state.(interface{ Approximate() bool }); ok && a.Approximate() {
		return
	}
	for _, odd := range snap.Odd {
		if !slices.Contains(snap.Forged, odd) {
			j.d.emit(0, event.Forged{Who: ID(odd).Short(), Reason: "its state has other hashes than the state of most members"})
		}
	}
}

// donors returns the IDs of the members to copy from, in the order of reach.donors.
func (j *joiner) donors(spread bool) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, m := range j.reach.donors(spread) {
		out = append(out, string(m.ID))
	}
	return out
}

// ask asks the members in rank order whether this peer may join, and returns the first answer. As
// long as the first member lives it alone decides, so peers that ask at the same time have one
// judge. Members that could not be reached are asked last.
func (j *joiner) ask(ctx context.Context, c Candidate) (admissionAnswer, error) {
	j.askRest(ctx)
	for _, m := range j.judges() {
		r, err := j.offerTo(ctx, m, offer{Level: true, Candidate: c})
		switch {
		case err != nil || r.Wait != "":
			continue // the next member may be able to decide
		case r.Refused != "":
			return admissionAnswer{}, fmt.Errorf("%w by %s: %s", ErrRefused, m.ID.Short(), r.Refused)
		}
		j.met(r)
		switch {
		case r.Parked != "":
			j.admit(nil)
			return admissionAnswer{parked: r.Parked}, nil
		case r.CutOff != "":
			j.admit(nil)
			return admissionAnswer{cutOff: r.CutOff}, nil
		case r.Later != "":
			return admissionAnswer{}, nil
		}
		j.admit(&c)
		return admissionAnswer{by: m.ID}, nil
	}
	return admissionAnswer{}, nil
}

// askRest makes the offer to the targets to which no offer was made yet.
func (j *joiner) askRest(ctx context.Context) {
	j.mu.Lock()
	rest := j.reach.untried()
	j.mu.Unlock()
	inParts(rest, func(m Member) { _, _ = j.offerTo(ctx, m, j.offer()) }) // deliver records the result
}

// judges returns the members to ask for admission.
func (j *joiner) judges() []Member {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reach.judges()
}

// admit records c, the measurements with which this peer was admitted; nil means that it is not
// admitted. The offers to all members carry the record, so that others can admit this peer if the
// member that decided dies.
func (j *joiner) admit(c *Candidate) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.admitted = c
}

// contactsFrom lists the members that the membership machine asks in turn, and whose decisions
// alone it believes. The list has first the member that has approved this peer, and then the
// members that would approve this peer if the first one dies.
func (j *joiner) contactsFrom(first ID) []ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	ids := []ID{first}
	for _, m := range j.reach.deciders() {
		if !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// roundPeriod returns the time between two rounds of offers.
func (j *joiner) roundPeriod() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.period()
}
