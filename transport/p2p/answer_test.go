package p2p

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/libp2p/go-libp2p/core/protocol"

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

// A stream that is no proof is refused, and no further byte of it is read. The opener of the stream
// may be a member that was not introduced yet: it waits for the refusal, and sends no more.
func TestExpectProposal(t *testing.T) {
	if err := expectProposal(bytes.NewReader(proposalOf(proveProtocol)), proveProtocol); err != nil {
		t.Error(err)
	}
	errMore := errors.New("more was read")
	for _, p := range []protocol.ID{controlProtocol, dataProtocol, urgentProtocol, bulkProtocol, addrsProtocol, pingProtocol, surveyProtocol, punchProtocol, "/x"} {
		r := io.MultiReader(bytes.NewReader(proposalOf(p)), iotest.ErrReader(errMore))
		if err := expectProposal(r, proveProtocol); err == nil || errors.Is(err, errMore) {
			t.Errorf("%s: %v", p, err)
		}
	}
}
