package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// ErrImpostor: what answered as a member does not hold the key of the ticket.
var ErrImpostor = errors.New("no member of this job: it could not prove that it knows the ticket")

const (
	// proofTime is how long a newcomer may take to show its proof.
	proofTime = lobbyTime
	// answerTime is how long it may take to read the answer.
	answerTime = time.Second
)

// The member's answer: whether the newcomer is in, the member's clock in Unix seconds, the
// member's proof, and the secret (zeros if the newcomer is not in). It has one length,
// whatever it says.
const (
	answerIn      = 1
	answerExpired = 2
	answerWrong   = 3 // with a proof that cannot be right
	answerSize    = 1 + 8 + 2*ticket.KeySize
)

// SetSecret makes this host let in those that hold a ticket of the job, as members do.
// secret has ticket.KeySize bytes.
func (h *Host) SetSecret(secret []byte) error {
	if len(secret) != ticket.KeySize {
		return fmt.Errorf("p2p: set secret: %d bytes, want %d", len(secret), ticket.KeySize)
	}
	h.mu.Lock()
	h.secret = append([]byte(nil), secret...)
	h.mu.Unlock()
	h.gate.unlock()
	return nil
}

// Prove shows a member, which does not know this host, that it holds a ticket or the
// secret, and checks that the member holds the same. It returns the job's secret; the
// two have then been introduced to each other. It tries again until ctx ends while the
// member is not to be reached; it ends at once with ticket.ErrExpired or
// ticket.ErrWrong if the member says so, and with ErrImpostor if it is none.
func (h *Host) Prove(ctx context.Context, m elastic.Member, p ticket.Proof) (secret []byte, err error) {
	id, addrs, err := contact(m)
	if err == nil {
		h.host.Peerstore().AddAddrs(id, addrs, peerstore.TempAddrTTL)
		defer h.gate.ask(id)()
		err = h.retry(ctx, id, func(ctx context.Context) error {
			secret, err = h.proveOnce(ctx, id, p)
			return err
		})
	}
	if err == nil {
		err = h.Introduce([]elastic.Member{m})
	}
	for _, c := range h.swarm.ConnsToPeer(id) {
		h.reserve(c) // others may look for this host before the first message to m
	}
	if err != nil {
		return nil, fmt.Errorf("p2p: prove to %s: %w", m.ID.Short(), err)
	}
	return secret, nil
}

// proveOnce makes one attempt. A connection on which it failed is closed: the member
// listens to one proof only, and an impostor to none.
func (h *Host) proveOnce(ctx context.Context, id peer.ID, p ticket.Proof) ([]byte, error) {
	s, err := h.open(ctx, id, proveProtocol)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	claim := p.Claim(string(h.id), id.String())
	words := claim.Encode()
	var answer [answerSize]byte
	if _, err = s.Write(words[:]); err == nil {
		_, err = io.ReadFull(s, answer[:])
	}
	stop()
	var secret []byte
	if err == nil {
		secret, err = readAnswer(answer, p, claim)
	}
	_ = s.Reset() // all is said
	if err != nil && !h.gate.has(id) {
		h.hangUp(s.Conn())
	}
	return secret, err
}

// readAnswer takes in a member's answer to claim, which was made with p.
func readAnswer(b [answerSize]byte, p ticket.Proof, claim ticket.Claim) ([]byte, error) {
	clock := time.Unix(int64(binary.LittleEndian.Uint64(b[1:])), 0)
	proof, secret := ticket.MAC(b[9:]), b[9+ticket.KeySize:]
	if b[0] == answerWrong {
		return nil, final{ticket.ErrWrong}
	}
	if !proof.Equal(p.Member(claim.Newcomer, claim.Member)) {
		return nil, final{ErrImpostor}
	}
	switch b[0] {
	case answerIn:
		return secret, nil
	case answerExpired:
		return nil, final{fmt.Errorf("%w: it was good until %s, and the member's clock says %s; this one says %s",
			ticket.ErrExpired, stamp(time.Unix(p.Expiry, 0)), stamp(clock), stamp(time.Now()))}
	}
	return nil, final{fmt.Errorf("%w: answer of unknown kind %d", ErrImpostor, b[0])}
}

// stamp writes a time as people compare it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// acceptProof handles the stream of a newcomer that proves itself: after that it is in.
func (h *Host) acceptProof(s network.Stream) {
	err := s.SetDeadline(time.Now().Add(proofTime))
	var words [ticket.ClaimSize]byte
	if err == nil {
		_, err = io.ReadFull(s, words[:])
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	id := s.Conn().RemotePeer()
	claim := ticket.DecodeClaim(words, id.String(), string(h.id))
	secret := h.jobSecret()
	if secret == nil {
		_ = s.Reset() // of a member that knows the secret earlier than this one
		return
	}
	proof, err := claim.Check(secret, h.job, time.Now())
	switch {
	case errors.Is(err, ticket.ErrWrong):
		finishProof(s, answerTo(answerWrong, proof, claim, nil))
		h.expel(s.Conn())
	case errors.Is(err, ticket.ErrExpired):
		finishProof(s, answerTo(answerExpired, proof, claim, nil))
		h.expel(s.Conn())
	case h.gate.add(id):
		h.gate.meet(id, s.Conn().RemoteMultiaddr())
		finishProof(s, answerTo(answerIn, proof, claim, secret))
	default:
		_ = s.Reset() // forgotten
	}
}

// finishProof writes the answer and waits until the other side resets the stream, which
// it does when it has read the answer: a connection that is closed before would take it
// along.
func finishProof(s network.Stream, answer [answerSize]byte) {
	err := s.SetDeadline(time.Now().Add(answerTime))
	if err == nil {
		_, err = s.Write(answer[:])
	}
	if err == nil {
		_, _ = s.Read(make([]byte, 1))
	}
	_ = s.Reset()
}

// answerTo makes the member's answer to a claim; p is zero if that was wrong.
func answerTo(kind byte, p ticket.Proof, c ticket.Claim, secret []byte) [answerSize]byte {
	var b [answerSize]byte
	b[0] = kind
	binary.LittleEndian.PutUint64(b[1:], uint64(time.Now().Unix()))
	proof := p.Member(c.Newcomer, c.Member)
	copy(b[9:], proof[:])
	copy(b[9+ticket.KeySize:], secret)
	return b
}

// jobSecret returns the secret, or nil.
func (h *Host) jobSecret() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secret
}

// acceptStream is where all streams come in that others open. A member's go to the handler
// of their protocol; a stranger may open one, for its proof.
func (h *Host) acceptStream(s network.Stream) {
	mux := h.members
	if !h.gate.has(s.Conn().RemotePeer()) {
		if !h.lobby.speak(s.Conn()) {
			_ = s.Reset()
			return
		}
		mux = h.strangers
	}
	h.throttle.spend(s.Conn().RemotePeer(), streamTokens)
	err := s.SetDeadline(time.Now().Add(helloTime))
	if err != nil {
		_ = s.Reset()
		return
	}
	protocol, handler, err := mux.Negotiate(s)
	if err == nil {
		err = errors.Join(s.SetProtocol(protocol), s.SetDeadline(time.Time{}))
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	_ = handler(protocol, s)
}
