package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
)

const (
	// maxMessage bounds a line in bytes: a list of MaxMembers peers, or the longest reply with its
	// sequence number.
	maxMessage = MaxReply + 1<<10
	maxAddrs   = 64 // addresses of a peer
	SecretSize = 32 // bytes of a launcher's secret
	passSize   = 64 // bytes of the signature of a newcomer's ID
)

// Message is a line of JSON between launcher and peer, or between launcher and agent. Exactly one field is
// set beside To, PID and For: its name is the kind of the message. Between launcher and peer the order is
//
//	peer        hello ................ any of event, leaving, failed, suspect, scale, retry, known, renew, inquiry, figures .. (end)
//	launcher          ... start, finished or abort ... any of dead, scaled, decision, finished, pass, found, again, inquiry, figures, meter ... (end: it died)
//
// After again the peer says hello a second time, unless it has become a member meanwhile. An agent passes
// these messages on in both directions; its own are in Order and Report. The order is
//
//	launcher  begin ... part ......... probe or doctor ... any of spawn, input, signal, look, ask, beat, and messages to peers ... ended (end)
//	agent     ready ... need, prepared or refused ... probed or findings ... any of output, taken, dying, exit, halt, answer, and messages of peers (end)
//
// New fields may be added. A line without any field that the reader knows is an error.
type Message struct {
	// To is the index of the peer that the message is to, from or about; only between launcher and agent.
	To int `json:"i,omitempty"`
	// PID is the process that sent a message of a peer; only from agents.
	PID int `json:"pid,omitempty"`
	// For is the process for which the sender of a hello acts, as the sender sees process IDs; 0 for the
	// sender itself. It is an ancestor of the sender, which is its sidecar.
	For int `json:"for,omitempty"`
	Order
	Report

	// Hello is the first message of a peer that wants to join. A second hello with the same ID answers
	// Again. One with another ID comes from a further program in the same process group, after the end
	// of the previous program.
	Hello *elastic.Member `json:"hello,omitempty"`
	// Renew reports a new ID of the peer, because the group has put out the previous ID.
	Renew *elastic.Member `json:"renew,omitempty"`
	// Event is an event of the peer, kept as text so that logs show exactly the text sent.
	Event json.RawMessage `json:"event,omitempty"`
	// Leaving reports that the peer got SIGTERM and leaves.
	Leaving bool `json:"leaving,omitempty"`
	// Suspect names a member that has been silent for long.
	Suspect elastic.ID `json:"suspect,omitempty"`
	// Retry reports that the peer computes a part of members that are gone. Decision is the answer.
	Retry *RetryOrder `json:"retry,omitempty"`
	// Scale asks for another number of local peers. Scaled is the answer.
	Scale *ScaleOrder `json:"scale,omitempty"`
	// Failed is what the program of the peer says of its failure, in one line: the text of an error. Its end
	// follows.
	Failed string `json:"failed,omitempty"`
	// Note is a sentence for the people at the launcher, which prints it once.
	Note string `json:"note,omitempty"`
	// Inquiry asks for figures of the peers of a launcher, in either direction. Figures is the answer.
	Inquiry *Inquiry `json:"inquiry,omitempty"`
	Figures *Figures `json:"figures,omitempty"`
	// Meter asks a peer for Usage events, for a while.
	Meter bool `json:"meter,omitempty"`
	// Known is the information that later peers need to find the group.
	Known *Known `json:"known,omitempty"`

	// Program is the first message of a process of a Program. Directory is the answer, and reports changes.
	Program   *ProgramInfo     `json:"program,omitempty"`
	Directory *DirectoryUpdate `json:"directory,omitempty"`
	// Serving reports that a service accepts calls.
	Serving *ServingNode `json:"serving,omitempty"`

	// Start is the launcher's answer to hello: the order that says how to join.
	Start *StartOrder `json:"start,omitempty"`
	// Again takes back the order to join, as no member lives: a peer that still waits says hello again.
	Again bool `json:"again,omitempty"`
	// Finished reports that the job finished before the peer was admitted.
	Finished bool `json:"finished,omitempty"`
	// Abort is the negative answer to hello: the reason why there is no job to join.
	Abort string `json:"abort,omitempty"`
	// Dead names a member whose process has ended for certain.
	Dead elastic.ID `json:"dead,omitempty"`
	// Scaled is the answer to Scale.
	Scaled *ScaleResult `json:"scaled,omitempty"`
	// Decision is the answer to Retry.
	Decision *Decision `json:"decision,omitempty"`
	// Pass is the answer to Renew, if this launcher began the job.
	Pass *Pass `json:"pass,omitempty"`
	// Found has the peers that were announced under the ticket's key. They are not authenticated.
	Found []elastic.Member `json:"found,omitempty"`
}

// Pass is the launcher's signature of the ID of one of its peers, which gives the right to join.
type Pass struct {
	ID        elastic.ID `json:"id"`
	Signature []byte     `json:"signature"`
}

// StartOrder tells a peer how to become a member.
type StartOrder struct {
	// Peers are the members of the first view in rank order; empty for a peer that joins a running
	// group.
	Peers []elastic.Member `json:"peers,omitempty"`
	// Contacts are members of the running group that a later peer can ask to join.
	Contacts []elastic.Member `json:"contacts,omitempty"`
	// Secret is the seed of the key of the launcher that began the job. It never leaves the
	// launcher.
	Secret []byte `json:"-"`
	// HostKey is a secret shared by the peers of this launcher: peers of one host authenticate
	// each other with it.
	HostKey []byte `json:"host_key,omitempty"`
	// Job is elastic.Config.Job. It is "" if another launcher began the job: the members then tell it
	// to the peer.
	Job string `json:"job,omitempty"`
	// Root is the public key of this launcher if it began the job, otherwise "".
	Root string `json:"root,omitempty"`
	// Pass gives the peer the right to join. A peer without it has a ticket, or is in the first
	// view.
	Pass   []byte `json:"pass,omitempty"`
	Ticket string `json:"ticket,omitempty"`
	// Own reports that peers of this launcher have been admitted. These peers can admit later peers
	// when the ticket is not valid any more.
	Own bool `json:"own,omitempty"`
	// JoinTimeout is how long a peer looks for a member that admits it.
	JoinTimeout time.Duration `json:"join_timeout,omitempty"`

	// LAN allows discovery of the job on the local network.
	LAN bool `json:"lan,omitempty"`
	// PortMap asks the router to forward ports to the peer.
	PortMap bool `json:"port_map,omitempty"`
	// DHT reports that the launcher looks for the job's members as well.
	DHT bool `json:"dht,omitempty"`

	// Watched reports that this launcher, or its agent on the peer's host, has the peer's word
	// (proc.Local): the others learn of its end at once.
	Watched bool `json:"watched,omitempty"`

	// Logged reports that somebody reads the events of the job, and so wants Usage events, too.
	Logged bool `json:"logged,omitempty"`

	Launcher string `json:"launcher"` // Member.Launcher of all peers of this launcher: its public key
	PID      int    `json:"pid"`      // process ID of the launcher

	// Sole reports that this launcher has started all members of the job, as far as it knows.
	Sole bool `json:"sole,omitempty"`
	GroupSettings
}

// GroupSettings are copies from the launcher's Membership, for elastic.Config.
type GroupSettings struct {
	Any           bool          `json:"any,omitempty"` // --quorum any
	MinPeers      int           `json:"min_peers,omitempty"`
	RejoinTimeout time.Duration `json:"rejoin_timeout,omitempty"`
	StateRate     int           `json:"state_rate,omitempty"` // largest rate at which each member sends state, in bytes per second
}

// Known is a member's knowledge of its group.
type Known struct {
	Epoch   uint64           `json:"epoch"`
	Members []elastic.Member `json:"members"` // in rank order
	// Open reports that the job was opened to the network. Later peers then listen on the network
	// from the start.
	Open bool `json:"open,omitempty"`
	// Tickets are the tickets by which peers may join.
	Tickets []OpenTicket `json:"tickets,omitempty"`
}

// ScaleOrder asks the launcher for Peers peers in all, or on Host. Seq distinguishes the orders of
// one peer.
type ScaleOrder struct {
	Seq   int    `json:"seq"`
	Peers int    `json:"peers"`
	Host  string `json:"host,omitempty"`
}

// ScaleResult is the answer to the ScaleOrder with the same Seq. Exactly one of the texts is set.
type ScaleResult struct {
	Seq   int    `json:"seq"`
	Text  string `json:"text,omitempty"` // description of the action
	Error string `json:"error,omitempty"`
}

// DecodeMessage decodes a line and checks everything that its reader relies on. The line may come
// from any program, so it is not trusted: lengths are bounded here and by the longest line, and
// strings are only compared, dialled or printed.
func DecodeMessage(line []byte) (Message, error) {
	var m Message
	if err := json.Unmarshal(line, &m); err != nil {
		return Message{}, fmt.Errorf("launch: decode message: %w", err)
	}
	if err := m.check(); err != nil {
		return Message{}, fmt.Errorf("launch: decode message: %w", err)
	}
	return m, nil
}

// OfPeer reports whether m is a message between launcher and peer.
func (m Message) OfPeer() bool { return countSet(m.Order)+countSet(m.Report) == 0 }

// countSet returns the number of fields of a struct, and of the structs that it embeds, that are set.
func countSet(of any) (n int) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case v.Type().Field(i).Anonymous:
			n += countSet(f.Interface())
		case f.Kind() == reflect.Slice && f.Len() == 0: // an empty list is not written
		case !f.IsZero():
			n++
		}
	}
	return n
}

// check returns the error for which DecodeMessage refuses m: every number, list and key that a reader
// relies on is bounded.
func (m Message) check() error {
	kinds := m
	kinds.To, kinds.PID, kinds.For = 0, 0, 0
	set := countSet(kinds)
	for _, members := range m.members() {
		if err := checkMembers(members); err != nil {
			return err
		}
	}
	switch {
	// Readers switch on the field that is set, so exactly one field must be set.
	case set != 1:
		return fmt.Errorf("%d fields, want one: use the same version of elrun everywhere", set)
	case m.To < 0 || m.To >= spec.MaxPeers+spec.MaxNodes:
		return fmt.Errorf("peer %d, want 0 to %d", m.To, spec.MaxPeers+spec.MaxNodes-1)
	case m.For < 0 || m.For > 0 && m.Hello == nil:
		return fmt.Errorf("process %d, for which only a hello can be", m.For)
	case m.Start != nil && len(m.Start.Pass) != 0 && len(m.Start.Pass) != passSize:
		return fmt.Errorf("the launcher's signature of the peer's ID has %d bytes, want %d", len(m.Start.Pass), passSize)
	case m.Start != nil && len(m.Start.HostKey) != 0 && len(m.Start.HostKey) != p2p.HostKeySize:
		return fmt.Errorf("the host key has %d bytes, want %d", len(m.Start.HostKey), p2p.HostKeySize)
	case m.Pass != nil && len(m.Pass.Signature) != passSize:
		return fmt.Errorf("the launcher's signature of the peer's ID has %d bytes, want %d", len(m.Pass.Signature), passSize)
	case m.Known != nil && len(m.Known.Tickets) > MaxTickets:
		return fmt.Errorf("%d tickets, at most %d", len(m.Known.Tickets), MaxTickets)
	case m.Retry != nil:
		return m.Retry.check()
	case m.Inquiry != nil:
		return m.Inquiry.check()
	case m.Figures != nil:
		return m.Figures.check()
	case m.Program != nil:
		return m.Program.Check()
	case m.Directory != nil:
		return m.Directory.check()
	case m.Serving != nil:
		return m.Serving.check()
	}
	return cmp.Or(m.Order.check(), m.Report.check())
}

// MaxNote is the maximum length of a note, in bytes.
const MaxNote = 180

// ClipNote turns a text into one printable line of at most MaxNote bytes.
func ClipNote(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return Clip(text, MaxNote)
}

// Clip cuts a text to most bytes, if it is longer, and marks the cut with dots.
func Clip(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}

// members returns all lists of members in m.
func (m Message) members() [][]elastic.Member {
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

// checkMembers returns an error for a list beyond the limits, which no correct peer sends.
func checkMembers(members []elastic.Member) error {
	if len(members) > spec.MaxMembers {
		return fmt.Errorf("%d peers, at most %d", len(members), spec.MaxMembers)
	}
	for _, p := range members {
		if p.ID == "" || len(p.Addrs) > maxAddrs {
			return fmt.Errorf("peer %q with %d addresses: want an ID and at most %d addresses", p.ID, len(p.Addrs), maxAddrs)
		}
	}
	return nil
}

// MaxTickets bounds the open tickets of a job.
const MaxTickets = 128

// OpenTicket is a ticket that still admits peers. Its key is public and admits nobody; holders of
// the ticket look up the job by the key.
type OpenTicket struct {
	Key    string `json:"key"`
	Expiry int64  `json:"expiry"` // Unix seconds
}

// TicketsOf returns the tickets of a view that still admit peers.
func TicketsOf(v elastic.View) []OpenTicket {
	var out []OpenTicket
	for _, g := range v.Grants {
		if g.Issuer != "" && g.Left() {
			out = append(out, OpenTicket{string(g.Key), g.Expiry})
		}
	}
	return out
}

// Watcher returns the ID of the launcher that reports the ends of its peers at once; "" if it does
// not.
func (s StartOrder) Watcher() string {
	if s.Watched {
		return s.Launcher
	}
	return ""
}

// RepeatPeriod is the time in which further signals count as repetitions of the first signal. The
// programs timeout and sudo, and supervisors, signal a process and its group; when a launcher is
// killed, Linux may send its children one SIGTERM for each of its threads.
const RepeatPeriod = time.Second
