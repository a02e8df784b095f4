package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/elrun/elrun/elastic"
)

const (
	maxMessage = 4 << 20          // bytes of a line; a list of maxPeers peers fits
	maxAddrs   = 64               // addresses of a peer
	pipePeriod = 10 * time.Second // longest wait for a stuck reader
)

// message is a line between launcher and peer; exactly one field is set. The order is
//
//	peer        hello ............... event event event ... (end)
//	launcher          ... peers or abort ................. (end: it died)
//
// New fields may be added. A line with none that the reader knows is an error.
type message struct {
	// Hello comes first from a peer that wants to join.
	Hello *elastic.Member `json:"hello,omitempty"`
	// Event is an event of the peer, kept as text so that logs show what was sent.
	Event json.RawMessage `json:"event,omitempty"`
	// Peers is the launcher's answer to all hellos, in rank order.
	Peers []elastic.Member `json:"peers,omitempty"`
	// Abort is the launcher's other answer: why the group cannot be formed.
	Abort string `json:"abort,omitempty"`
}

// decodeMessage reads one line and checks all that a reader relies on. The line comes from
// a program that may be anything, so nothing in it is trusted: lengths are bounded
// here and by the longest line, and strings are only ever compared, dialled or shown.
func decodeMessage(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("launch: decode message: %w", err)
	}
	set := 0
	for _, there := range []bool{m.Hello != nil, m.Event != nil, len(m.Peers) > 0, m.Abort != ""} {
		if there {
			set++
		}
	}
	if set != 1 {
		return message{}, fmt.Errorf("launch: decode message: %d fields, want one", set)
	}
	if len(m.Peers) > maxPeers {
		return message{}, fmt.Errorf("launch: decode message: %d peers, at most %d", len(m.Peers), maxPeers)
	}
	members := m.Peers
	if m.Hello != nil {
		members = []elastic.Member{*m.Hello}
	}
	for _, p := range members {
		if p.ID == "" || len(p.Addrs) > maxAddrs {
			return message{}, fmt.Errorf("launch: decode message: peer %q with %d addresses", p.ID, len(p.Addrs))
		}
	}
	return m, nil
}

// pipe exchanges messages over a stream. One goroutine may send while another
// receives.
type pipe struct {
	conn net.Conn
	scan *bufio.Scanner
}

func newPipe(conn net.Conn) *pipe {
	scan := bufio.NewScanner(conn)
	scan.Buffer(nil, maxMessage)
	return &pipe{conn: conn, scan: scan}
}

// send writes m. It fails where the other side does not read for pipePeriod.
func (p *pipe) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("launch: encode message: %w", err)
	}
	if len(b) >= maxMessage {
		return fmt.Errorf("launch: encode message: %d bytes, at most %d", len(b), maxMessage)
	}
	if err := p.conn.SetWriteDeadline(time.Now().Add(pipePeriod)); err != nil {
		return fmt.Errorf("launch: send message: %w", err)
	}
	if _, err := p.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("launch: send message: %w", err)
	}
	return nil
}

// receive returns the next message; io.EOF says that the other side has ended. A line
// that was begun but not ended counts as nothing: its writer died.
func (p *pipe) receive() (message, error) {
	if p.scan.Scan() {
		return decodeMessage(bytes.Clone(p.scan.Bytes()))
	}
	err := p.scan.Err()
	if err == nil || isReset(err) {
		return message{}, io.EOF
	}
	return message{}, fmt.Errorf("launch: receive message: %w", err)
}

// isReset reports the errors by which a stream ends whose other end is gone: a reset
// where the other end had not read all that we sent, or our own Close.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}
