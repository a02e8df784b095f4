package direct

import (
	"context"
	"errors"
	"fmt"
)

// KeySize is the length of the key of a Host in bytes.
const KeySize = keySize

// Host makes a port accept the streams of other processes of the host that hold the same key.
type Host struct {
	Key [KeySize]byte
	// Admit returns 0 if a stream of a process is accepted, or the reason of the refusal. The process
	// has proven that it holds the key.
	Admit func(id string) Refusal
	// Take gets each accepted stream, and owns it. It is called in a goroutine for which Close waits.
	Take func(c *Conn, id string, kind byte)
}

// Refusal is the reason why a process that holds the key is refused; 0 means that it is accepted.
type Refusal byte

// The reasons.
const (
	Unknown Refusal = 1 + iota // this side was not introduced to the process yet
	Banned                     // the process may not come again
)

// Error implements error.
func (r Refusal) Error() string {
	if r == Banned {
		return "the other side has banned this process"
	}
	return "the other side does not know this process yet"
}

// answers returns the labels of the proofs by which an acceptor answers, by Refusal.
func answers() []string {
	return []string{waitLabel, "elrun direct unknown", "elrun direct banned"}
}

// hostStream stands in a greeting in place of the number of connections: the dialler holds the key
// of the host, and a claim follows: the kind, the length of its ID, and its ID.
const hostStream = 255

// hostLabel separates the keys of streams from all proofs.
const hostLabel = "elrun direct host"

// ErrNoKey means that ServeHost was not called yet, or that there is no Unix socket.
var ErrNoKey = errors.New("there is no key of the host")

// ticket returns the ticket of one stream. Its key depends on both IDs, so that nobody can pass the
// greeting on to a third process, and on all that the greeting says.
func (h *Host) ticket(number [numberSize]byte, claim, to string) Ticket {
	t := Ticket{Number: number, Key: h.Key, claim: claim}
	t.Key = [keySize]byte(t.proof(hostLabel + string(number[:]) + claim + to)) // the claim has its length
	return t
}

// ServeHost accepts streams of the host from now on, if the port has a Unix socket. Streams that
// came before wait for it. A second call has no effect: open streams were proven with the first key.
func (p *Port) ServeHost(h *Host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host == nil && p.id != "" {
		p.host = h
		close(p.serving)
	}
}

// DialHost opens a stream to another process of the host, which holds the same key. It fails at once
// with ECONNREFUSED if no process listens with that ID, with ErrProof if the process lacks the key,
// and with a Refusal if it refuses.
func (p *Port) DialHost(ctx context.Context, to string, kind byte) (*Conn, error) {
	select {
	case <-p.serving:
	default:
		return nil, fmt.Errorf("direct: dial %s: %w", to, ErrNoKey)
	}
	claim := string([]byte{kind, byte(len(p.id))}) + p.id
	return Dial(ctx, UnixTarget(to), p.host.ticket(NewTicket().Number, claim, to), nil)
}
