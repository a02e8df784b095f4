package p2p

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/elrun/elrun/elastic"
)

// A process outside of the job, the launcher of members that have died, tells a member that they are
// dead. It opens a connection under a fresh identity, as a stranger, and one stream:
//
//	launcher  number of obituaries, 1 byte; for each: length of the ID, 1 byte; ID; signature, 64 bytes
//	member    1 if it has told its group, 0 if it is in none, or if a signature is wrong; 1 byte
//
// An obituary proves itself by its signature and is true for ever, so neither who brings it nor a
// repetition matters.

// obituaryProtocol is the protocol of these streams.
const obituaryProtocol protocol.ID = "/elrun/obituary/1"

const (
	// MaxObituaries bounds the obituaries that Tell sends at once.
	MaxObituaries = 64
	// maxIDLength bounds the ID in an obituary, in bytes.
	maxIDLength = 64
)

// Obituary says that a member is dead.
type Obituary struct {
	ID        elastic.ID
	Signature [ed25519.SignatureSize]byte // by the key of the launcher that started the member
}

// Tell brings obituaries, at most MaxObituaries, to a member at one of its addresses. It returns nil if
// the member has told its group. ErrNoMember means that the process has ended. After another error it may
// be about to become a member, so tell it again.
func Tell(ctx context.Context, m elastic.Member, obituaries []Obituary) error {
	id, err := peer.Decode(string(m.ID))
	if err != nil {
		return fmt.Errorf("p2p: tell %s: %w", m.ID.Short(), err)
	}
	err = fmt.Errorf("%w: it has no address that can be dialled", ErrNoMember)
	for _, addr := range m.Addrs {
		kind, address, wrong := dialArgs(addr)
		if wrong != nil {
			continue
		}
		at := tellAt(ctx, kind, address, id, obituaries)
		if at == nil {
			return nil
		}
		if errors.Is(err, ErrNoMember) { // the member may live at an address that does not answer
			err = at
		}
	}
	return fmt.Errorf("p2p: tell %s: %w", m.ID.Short(), err)
}

// ErrNoMember means that a process has ended, so it is no member of a group.
var ErrNoMember = errors.New("no member")

// tellAt brings obituaries to the member with an ID at an address.
func tellAt(ctx context.Context, kind, address string, id peer.ID, obituaries []Obituary) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, kind, address)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w: %w", ErrNoMember, err)
		}
		return err
	}
	defer conn.Close()
	if limit, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(limit); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	v, err := visit(ctx, conn, id)
	if err != nil {
		return err
	}
	defer v.close()
	got, err := v.propose(obituaryProtocol)
	if err == nil && got != obituaryProtocol {
		err = fmt.Errorf("it answered %q", got)
	}
	if err == nil {
		_, err = v.stream.Write(encodeObituaries(obituaries))
	}
	var answer [1]byte
	if err == nil {
		_, err = io.ReadFull(v.stream, answer[:])
	}
	if err == nil && answer[0] != 1 {
		err = errors.New("it is in no group that it could tell, or a signature is wrong")
	}
	return err
}

// encodeObituaries returns the request of the launcher.
func encodeObituaries(obituaries []Obituary) []byte {
	b := []byte{byte(len(obituaries))}
	for _, o := range obituaries {
		b = append(append(b, byte(len(o.ID))), o.ID...)
		b = append(b, o.Signature[:]...)
	}
	return b
}

// readObituaries reads the request of a launcher.
func readObituaries(r io.Reader) ([]Obituary, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	if n[0] < 1 || n[0] > MaxObituaries {
		return nil, fmt.Errorf("%d obituaries, want 1 to %d", n[0], MaxObituaries)
	}
	out := make([]Obituary, n[0])
	for i := range out {
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return nil, err
		}
		if n[0] < 1 || n[0] > maxIDLength {
			return nil, fmt.Errorf("an ID of %d bytes, want 1 to %d", n[0], maxIDLength)
		}
		id := make([]byte, n[0])
		if _, err := io.ReadFull(r, id); err != nil {
			return nil, err
		}
		out[i].ID = elastic.ID(id)
		if _, err := io.ReadFull(r, out[i].Signature[:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// acceptObituaries handles the stream of a launcher. Its connection is closed afterwards.
func (a *admission) acceptObituaries(s network.Stream) {
	err := s.SetDeadline(time.Now().Add(proofTime))
	var obituaries []Obituary
	if err == nil {
		obituaries, err = readObituaries(s)
	}
	if err != nil {
		_ = s.Reset()
		return
	}
	answer := byte(0)
	if a.onObituaries(obituaries) {
		answer = 1
	}
	if _, err := s.Write([]byte{answer}); err == nil {
		waitEnd(s)
	}
	_ = s.Reset()
	a.expel(s.Conn())
}
