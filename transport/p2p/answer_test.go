package p2p

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// A newcomer distinguishes the answer of a member, of an impostor, and of a member that cannot
// decide yet.
func TestTakeAnswer(t *testing.T) {
	c := signer(1).Credential("test", ticket.Identity{}, "new")
	said := func(a ticket.Answer, member, newcomer string) ticket.Answer {
		return ticket.DecodeAnswer(a.Encode(member, newcomer))
	}
	in := ticket.Answer{Decision: ticket.In, Signer: signer(1).ID}
	used := ticket.Answer{Decision: ticket.UsedUp, Signer: signer(1).ID}
	for name, test := range map[string]struct {
		answer ticket.Answer
		want   error
	}{
		"in":               {said(in, "old", "new"), nil},
		"used up":          {said(used, "old", "new"), ticket.ErrUsedUp},
		"unknown":          {said(ticket.Answer{Decision: ticket.Unknown}, "old", "new"), ticket.ErrUnknown},
		"not yet":          {said(ticket.Answer{Decision: ticket.NotYet}, "old", "new"), errNotYet},
		"outside":          {said(ticket.Answer{Decision: ticket.Outside}, "old", "new"), elastic.ErrOutside},
		"nothing":          {ticket.Answer{}, ErrImpostor},
		"another key":      {said(ticket.Answer{Decision: ticket.In, Signer: signer(2).ID}, "old", "new"), ErrImpostor},
		"another member":   {said(in, "other", "new"), ErrImpostor},
		"another newcomer": {said(in, "old", "other"), ErrImpostor},
	} {
		if err := takeAnswer(test.answer, c, "old", "new"); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A newcomer accepts only the exact answer that a member has made.
func FuzzProofAnswer(f *testing.F) {
	f.Add(make([]byte, ticket.AnswerSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b [ticket.AnswerSize]byte
		copy(b[:], in)
		c := signer(1).Credential("test", ticket.Identity{}, "new")
		if err := takeAnswer(ticket.DecodeAnswer(b), c, "old", "new"); err == nil {
			t.Errorf("%x was believed", b)
		}
	})
}

// Nothing is read after a proposal: the opener of the stream may be a member that was not introduced
// yet, which waits for the refusal and sends no more. Nor is anything read of what is no proposal.
func TestReadProposal(t *testing.T) {
	errMore := errors.New("more was read")
	for _, p := range []protocol.ID{proveProtocol, controlProtocol, dataProtocol, urgentProtocol, bulkProtocol, questionProtocol, "/x", "na"} {
		r := io.MultiReader(bytes.NewReader(proposalOf(p)), iotest.ErrReader(errMore))
		if got, err := readProposal(r); err != nil || got != p {
			t.Errorf("%s: %s, %v", p, got, err)
		}
	}
	long := protocol.ID(strings.Repeat("x", maxProtocol))
	for _, text := range []string{"\x01\n", "\x13/multistream/2.0.0\n", string(proposalOf(long)[:len(proposalOf(""))-1]), string(frameOf("/multistream/1.0.0")) + "\x00"} {
		r := io.MultiReader(strings.NewReader(text), iotest.ErrReader(errMore))
		if got, err := readProposal(r); err == nil || errors.Is(err, errMore) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
