package attack

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// attacker is a host that has shown a ticket to every member, and is not a member.
type attacker struct {
	host    *p2p.Host
	members []elastic.Member
	heard   chan []byte // control messages from members, up to the channel's capacity
	reading sync.WaitGroup
}

// newAttacker starts an attacker that shows ticket k to all size members, as a newcomer does.
func newAttacker(ctx context.Context, t *testing.T, k ticket.Ticket, size int) *attacker {
	t.Helper()
	h, err := p2p.Listen(ctx, p2p.Config{Job: k.Job, ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	a := &attacker{host: h, heard: make(chan []byte, 256)}
	a.reading.Go(func() {
		for e := range h.Events() {
			if e.Kind == elastic.PeerMessage {
				select {
				case a.heard <- e.Data:
				default: // drops the message: the channel is full
				}
			}
		}
	})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		a.reading.Wait()
	})
	if err := a.enter(ctx, k); err != nil {
		t.Fatal(err)
	}
	if len(a.members) != size {
		t.Fatalf("it learned of %d members", len(a.members))
	}
	return a
}

// enter shows the ticket to the member at the ticket's first address, asks this member for the list
// of members, and shows the ticket to all of them.
func (a *attacker) enter(ctx context.Context, k ticket.Ticket) error {
	first, err := a.host.Identify(ctx, k.Addrs[0])
	if err != nil {
		return err
	}
	shown := k.Credential(string(a.host.ID()))
	if err := a.host.Prove(ctx, first, shown); err != nil {
		return err
	}
	answer, err := a.request(ctx, first.ID, a.offer(nil))
	if err != nil {
		return err
	}
	var reply struct{ Members []elastic.Member }
	if err := json.Unmarshal(answer, &reply); err != nil {
		return err
	}
	a.members = reply.Members
	for _, m := range a.members {
		if err := a.prove(ctx, m, shown); err != nil {
			return err
		}
	}
	return nil
}

// prove shows a credential to a member, repeatedly while the member does not know the ticket yet.
func (a *attacker) prove(ctx context.Context, m elastic.Member, c ticket.Credential) (err error) {
	if !process.Holds(ctx, time.Minute, func() bool {
		err = a.host.Prove(ctx, m, c)
		return !errors.Is(err, ticket.ErrUnknown)
	}) {
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

// offer returns an offer to join. fields replace the fields of an honest offer.
func (a *attacker) offer(fields map[string]any) []byte {
	all := map[string]any{"state": true, "member": elastic.Member{ID: a.host.ID(), Addrs: a.host.Addrs()}}
	for name, value := range fields {
		all[name] = value
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // the values of the tests can be encoded
	}
	return append([]byte{'o'}, b...)
}

// request sends a request to a member, and reads as much of the answer as an honest answer has.
func (a *attacker) request(ctx context.Context, to elastic.ID, body []byte) ([]byte, error) {
	answer, err := a.host.Request(ctx, to, body)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(answer, 1<<20))
	return b, errors.Join(err, answer.Close())
}

// sendAll sends a control message to every member. It ignores errors.
func (a *attacker) sendAll(ctx context.Context, letter []byte) {
	for _, m := range a.members {
		_ = a.host.Send(ctx, m.ID, letter) // effects of the message show in the event log of the job
	}
}

// These are the first bytes of control messages in package elastic.
const (
	memberLetter  = 1
	beatLetter    = 2
	yieldLetter   = 3
	foreignLetter = 4
	lastLetter    = 9 // larger than every kind
)

// machine encodes a message of the membership protocol as a control message.
func machine(m member.Message) []byte { return member.Encode([]byte{memberLetter}, m) }

// view asks all members for their view. It returns the first answer that has a view, decoded and as
// a control message.
func (a *attacker) view(ctx context.Context) (member.Message, []byte, error) {
	a.sendAll(ctx, machine(member.Message{Kind: member.Ask}))
	for {
		select {
		case letter := <-a.heard:
			if len(letter) == 0 || letter[0] != memberLetter {
				continue
			}
			if m, err := member.Decode(letter[1:]); err == nil && m.Kind == member.Chain && m.Base != nil {
				return m, letter, nil
			}
		case <-ctx.Done():
			return member.Message{}, nil, context.Cause(ctx)
		}
	}
}
