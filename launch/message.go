package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

const (
	maxMessage = 8 << 20      // bytes of a line; a list of maxMembers peers fits
	maxMembers = 2 * maxPeers // members of a group, peers of several launchers
	maxAddrs   = 64           // addresses of a peer
	secretSize = 32           // bytes of a launcher's secret
	passSize   = 64           // bytes of a signature under a newcomer's ID
)

// message is a line between launcher and peer; exactly one field is set. The order is
//
//	peer        hello ................ any of event, suspect, scale, known, renew ......... (end)
//	launcher          ... start or abort ... any of dead, scaled, finished, pass, found, start again ......................... (end: it died)
//
// New fields may be added. A line with none that the reader knows is an error.
type message struct {
	// Hello comes first from a peer that wants to join. A second one comes from a further
	// program in the same process group, after the end of the one before.
	Hello *elastic.Member `json:"hello,omitempty"`
	// Renew comes when the peer has a new ID: the group has put out the one before.
	Renew *elastic.Member `json:"renew,omitempty"`
	// Event is an event of the peer, kept as text so that logs show what was sent.
	Event json.RawMessage `json:"event,omitempty"`
	// Suspect names a member that has been silent for long.
	Suspect elastic.ID `json:"suspect,omitempty"`
	// Scale asks for another number of local peers; Scaled answers.
	Scale *scaleOrder `json:"scale,omitempty"`
	// Note is a sentence for the people at the launcher, which says it once.
	Note string `json:"note,omitempty"`
	// Known is what peers that are started later need to find the group.
	Known *known `json:"known,omitempty"`

	// Program comes first from a process of a Program, Directory answers it and tells of changes.
	Program   *programInfo     `json:"program,omitempty"`
	Directory *directoryUpdate `json:"directory,omitempty"`
	// Serving comes from a service that takes calls.
	Serving *servingNode `json:"serving,omitempty"`

	// Start is the launcher's answer to hello.
	Start *startOrder `json:"start,omitempty"`
	// Finished says that the job was finished before the peer was let in.
	Finished bool `json:"finished,omitempty"`
	// Abort is the launcher's other answer: why the group cannot be formed.
	Abort string `json:"abort,omitempty"`
	// Dead names a member whose process has ended for certain.
	Dead elastic.ID `json:"dead,omitempty"`
	// Scaled answers Scale.
	Scaled *scaleResult `json:"scaled,omitempty"`
	// Pass answers Renew, if this launcher began the job.
	Pass *pass `json:"pass,omitempty"`
	// Found are those who were announced under the ticket's key, and may be anybody.
	Found []elastic.Member `json:"found,omitempty"`
}

// pass is the launcher's signature under the ID of one of its peers: the right to join.
type pass struct {
	ID        elastic.ID `json:"id"`
	Signature []byte     `json:"signature"`
}

// startOrder tells a peer how to become a member.
type startOrder struct {
	// Peers are the members of the first view in rank order; none for a peer that joins
	// a group which runs.
	Peers []elastic.Member `json:"peers,omitempty"`
	// Contacts are members of the running group that such a peer may ask.
	Contacts []elastic.Member `json:"contacts,omitempty"`
	// Secret makes the key of the launcher that began the job. It never leaves the launcher.
	Secret []byte `json:"-"`
	// HostKey is what the peers of this launcher share: those of one host prove it to each other.
	HostKey []byte `json:"host_key,omitempty"`
	// Root is the public key of the launcher that began the job, if this one did.
	Root string `json:"root,omitempty"`
	// Pass is by what right the peer joins; one without has a ticket, or is of the first view.
	Pass   []byte `json:"pass,omitempty"`
	Ticket string `json:"ticket,omitempty"`
	// Own: peers of this launcher have been let in, by whom those that come later may be, too,
	// when the ticket is not good any more.
	Own bool `json:"own,omitempty"`
	// JoinTimeout is how long a peer looks for a member that lets it in.
	JoinTimeout time.Duration `json:"join_timeout,omitempty"`

	// LAN: the job may be found on the local network.
	LAN bool `json:"lan,omitempty"`
	// PortMap: the router is asked to pass on what comes for the peer.
	PortMap bool `json:"port_map,omitempty"`
	// DHT: the launcher looks for the job's members, too.
	DHT bool `json:"dht,omitempty"`

	Launcher string `json:"launcher"` // Member.Launcher of all that this launcher starts
	PID      int    `json:"pid"`      // of the launcher

	// Sole: this launcher has started all members of the job, as far as it knows.
	Sole          bool          `json:"sole,omitempty"`
	Any           bool          `json:"any,omitempty"` // --quorum any
	MinPeers      int           `json:"min_peers,omitempty"`
	RejoinTimeout time.Duration `json:"rejoin_timeout,omitempty"`
	StateRate     int           `json:"state_rate,omitempty"` // bytes a second that each hands out at most
}

// known is what a member knows of its group.
type known struct {
	Epoch   uint64           `json:"epoch"`
	Members []elastic.Member `json:"members"` // in rank order
	// Open: the job was opened to the network, on which later peers listen from the start.
	Open bool `json:"open,omitempty"`
	// Tickets are those by which peers may join.
	Tickets []openTicket `json:"tickets,omitempty"`
}

// scaleOrder asks the launcher for Peers peers in all, or on a host. Seq tells orders of one
// peer apart.
type scaleOrder struct {
	Seq   int    `json:"seq"`
	Peers int    `json:"peers"`
	Host  string `json:"host,omitempty"`
}

// scaleResult answers the scaleOrder of the same Seq; one of the texts is set.
type scaleResult struct {
	Seq   int    `json:"seq"`
	Text  string `json:"text,omitempty"` // what happens now
	Error string `json:"error,omitempty"`
}

// decodeMessage reads one line and checks all that a reader relies on. The line comes from
// a program that may be anything, so nothing in it is trusted: lengths are bounded
// here and by the longest line, and strings are only ever compared, dialled or shown.
func decodeMessage(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("launch: decode message: %w", err)
	}
	if err := m.check(); err != nil {
		return message{}, err
	}
	return m, nil
}

// check reports what decodeMessage refuses.
func (m message) check() error {
	set := 0
	for _, there := range []bool{m.Hello != nil, m.Renew != nil, m.Finished, m.Event != nil, m.Suspect != "", m.Scale != nil, m.Known != nil, m.Note != "",
		m.Start != nil, m.Abort != "", m.Dead != "", m.Scaled != nil, m.Program != nil, m.Directory != nil, m.Serving != nil, m.Pass != nil, m.Found != nil} {
		if there {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("launch: decode message: %d fields, want one", set)
	}
	for _, members := range m.members() {
		if err := checkMembers(members); err != nil {
			return fmt.Errorf("launch: decode message: %w", err)
		}
	}
	if m.Start != nil && len(m.Start.Pass) != 0 && len(m.Start.Pass) != passSize || m.Pass != nil && len(m.Pass.Signature) != passSize {
		return errors.New("launch: decode message: a pass of another length")
	}
	if m.Known != nil && len(m.Known.Tickets) > maxTickets {
		return fmt.Errorf("launch: decode message: %d tickets, at most %d", len(m.Known.Tickets), maxTickets)
	}
	if m.Start != nil && len(m.Start.HostKey) != 0 && len(m.Start.HostKey) != p2p.HostKeySize {
		return errors.New("launch: decode message: a host key of another length")
	}
	return m.checkProgram()
}

// checkProgram is check for what is said about a Program.
func (m message) checkProgram() (err error) {
	switch {
	case m.Program != nil:
		err = m.Program.check()
	case m.Directory != nil:
		err = m.Directory.check()
	case m.Serving != nil:
		err = m.Serving.check()
	}
	if err != nil {
		return fmt.Errorf("launch: decode message: %w", err)
	}
	return nil
}

// maxNote is the longest note, in bytes.
const maxNote = 180

// clipNote makes one printable line of a text.
func clipNote(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return clip(text, maxNote)
}

// clip returns a text of up to most bytes, at whose end dots stand for the rest.
func clip(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}

// members returns the lists of members in m.
func (m message) members() [][]elastic.Member {
	switch {
	case m.Hello != nil:
		return [][]elastic.Member{{*m.Hello}}
	case m.Renew != nil:
		return [][]elastic.Member{{*m.Renew}}
	case m.Start != nil:
		return [][]elastic.Member{m.Start.Peers, m.Start.Contacts}
	case m.Known != nil:
		return [][]elastic.Member{m.Known.Members}
	case m.Found != nil:
		return [][]elastic.Member{m.Found}
	}
	return nil
}

// checkMembers refuses what no peer would send.
func checkMembers(members []elastic.Member) error {
	if len(members) > maxMembers {
		return fmt.Errorf("%d peers, at most %d", len(members), maxMembers)
	}
	for _, p := range members {
		if p.ID == "" || len(p.Addrs) > maxAddrs {
			return fmt.Errorf("peer %q with %d addresses", p.ID, len(p.Addrs))
		}
	}
	return nil
}

// pipe exchanges messages over a stream. One goroutine may send while another
// receives.
type pipe struct {
	conn net.Conn
	scan *bufio.Scanner
}

func newPipe(conn net.Conn) *pipe {
	scan := bufio.NewScanner(&leftovers{stream: conn})
	scan.Buffer(nil, maxMessage)
	scan.Split(wholeLine)
	return &pipe{conn: conn, scan: scan}
}

// wholeLine is bufio.ScanLines without a last line that was not ended.
func wholeLine(data []byte, _ bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// encode returns m as a line.
func (m message) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("launch: encode message: %w", err)
	}
	if len(b) >= maxMessage {
		return nil, fmt.Errorf("launch: encode message: %d bytes, at most %d", len(b), maxMessage)
	}
	return append(b, '\n'), nil
}

// write writes a line. It waits for a reader that is slow or stopped, and fails when there
// is none any more.
func (p *pipe) write(line []byte) error {
	if _, err := p.conn.Write(line); err != nil {
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
	return errors.As(err, &op) && !op.Timeout() || errors.Is(err, syscall.ECONNRESET)
}
