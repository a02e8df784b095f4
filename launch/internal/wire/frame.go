package wire

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
)

// Frame is a message between a launcher and the agent of a host, one line of JSON. Index is the
// index of the peer that the frame is about. Exactly one of Message and the fields of order and
// report is set; PID belongs to Message or Stopped. The order of the frames is
//
//	launcher  begin ... part ......... probe or doctor ... any of spawn, input, message, signal, look, ask, beat ... ended (end)
//	agent     ready ... need, prepared or refused ... probed or findings ... any of message, output, taken, dying, exit, halt, answer (end)
type Frame struct {
	Index int `json:"i,omitempty"`
	Order
	// Message is a message between launcher and peer, in both directions. PID is the process ID of
	// the peer.
	Message *Message `json:"msg,omitempty"`
	PID     int      `json:"pid,omitempty"`
	Report
}

// Order is the part of a frame that only launchers send. At most one field is set. A field that
// concerns one peer goes with frame.Index, the index of the peer. An agent that does not know a
// field finds no field set, and ends with ErrFrame.
type Order struct {
	Begin  *BeginOrder  `json:"begin,omitempty"`
	Part   *FilePart    `json:"part,omitempty"`   // part of the program file
	Probe  []HostAddrs  `json:"probe,omitempty"`  // addresses of the other hosts
	Doctor bool         `json:"doctor,omitempty"` // run Doctor on the host
	Spawn  *SpawnOrder  `json:"spawn,omitempty"`
	Signal *SignalOrder `json:"signal,omitempty"`
	Look   bool         `json:"look,omitempty"` // report whether the peer is stopped by a signal
	Ask    *AskOrder    `json:"ask,omitempty"`
	Input  *InputPart   `json:"in,omitempty"`
	Beat   bool         `json:"beat,omitempty"`  // heartbeat of the launcher
	Ended  *spec.Status `json:"ended,omitempty"` // record of the job's end
}

// set reports for each field whether it is set.
func (o *Order) set() []bool {
	return []bool{o.Begin != nil, o.Part != nil, len(o.Probe) > 0, o.Doctor, o.Spawn != nil, o.Signal != nil, o.Look, o.Ask != nil, o.Input != nil,
		o.Beat, o.Ended != nil}
}

// Report is the part of a frame that only agents send. At most one field is set.
type Report struct {
	Ready    *HostInfo    `json:"ready,omitempty"`
	Need     bool         `json:"need,omitempty"` // the program is missing: send it
	Prepared *Preparation `json:"prepared,omitempty"`
	Refused  string       `json:"refused,omitempty"` // why no peer can be started
	Probed   *ProbeResult `json:"probed,omitempty"`
	Findings *Findings    `json:"findings,omitempty"`
	Output   *OutputPart  `json:"out,omitempty"`
	Answer   *AskAnswer   `json:"answer,omitempty"`
	Taken    *InputTaken  `json:"taken,omitempty"`
	Mistake  string       `json:"mistake,omitempty"` // a violation of the protocol by the peer
	Halt     *HaltReport  `json:"halt,omitempty"`
	Dying    elastic.ID   `json:"dying,omitempty"` // the program that said hello by this ID has ended
	Exit     *ExitReport  `json:"exit,omitempty"`  // the last frame of a peer except for output
}

// set reports for each field whether it is set.
func (r *Report) set() []bool {
	return []bool{r.Ready != nil, r.Need, r.Prepared != nil, r.Refused != "", r.Probed != nil, r.Findings != nil, r.Output != nil,
		r.Answer != nil, r.Taken != nil, r.Mistake != "", r.Halt != nil, r.Dying != "", r.Exit != nil}
}

// BeginOrder describes to an agent the program of the job.
type BeginOrder struct {
	Protocol int     `json:"protocol"`
	Job      string  `json:"job"`
	Program  Bytes   `json:"program"` // "" if nothing will be started
	Args     []Bytes `json:"args"`
	Env      []Bytes `json:"env"` // NAME=VALUE, in addition to the environment of the host
	Dir      Bytes   `json:"dir"` // working folder; "" for the home folder
	// SHA256 is the hash of the program; "" if it is not checked.
	SHA256 string `json:"sha256,omitempty"`
	Copy   bool   `json:"copy,omitempty"` // the launcher sends the program if it is missing
	Self   bool   `json:"self,omitempty"` // the program is the agent's own executable
	Detach bool   `json:"detach,omitempty"`
	// Grace is Options.Grace of the launcher; 0 if the agent starts no peers.
	Grace time.Duration `json:"grace,omitempty"`
}

// GraceOrDefault returns the time that peers get to end after the end of the launcher.
func (b BeginOrder) GraceOrDefault() time.Duration { return cmp.Or(max(b.Grace, 0), spec.DefaultGrace) }

// Bytes is a string of any bytes. In JSON it is base64: file names, arguments and variables
// need not be UTF-8, and encoding/json would replace their other bytes by U+FFFD.
type Bytes string

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(b)) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *Bytes) UnmarshalJSON(text []byte) error {
	var b []byte
	err := json.Unmarshal(text, &b)
	*s = Bytes(b)
	return err
}

// Convert returns a copy of a list whose strings are of another type.
func Convert[To, From ~string](list []From) []To {
	out := make([]To, len(list))
	for i, s := range list {
		out[i] = To(s)
	}
	return out
}

// FilePart is a part of a file. An empty part is the end of the file.
type FilePart struct {
	Data []byte `json:"data"`
}

// HostInfo is the first frame of an agent: it describes the host.
type HostInfo struct {
	Protocol int    `json:"protocol"`
	Host     string `json:"host"`   // its own host name, for messages
	System   string `json:"system"` // as in linux/amd64
	Cores    int    `json:"cores"`
}

// Preparation reports that the agent has found the working folder and the program, and can start
// peers.
type Preparation struct {
	Addrs []string `json:"addrs"` // probe addresses, open until the first spawn
}

// HostAddrs holds the probe addresses of a host.
type HostAddrs struct {
	Host  string   `json:"host"`
	Addrs []string `json:"addrs"`
}

// ProbeResult has the hosts that an agent cannot connect to, with the cause, and the quality of
// the connections to the other hosts. Keys are names of hosts.
type ProbeResult struct {
	Failed map[string]string      `json:"failed"`
	Links  map[string]LinkQuality `json:"ways,omitempty"`
}

// LinkQuality describes the connection from one host to another.
type LinkQuality struct {
	MTU int           `json:"mtu,omitempty"` // largest packet in bytes, as the kernel knows it; 0 if unknown
	RTT time.Duration `json:"trip"`          // time to connect: one round trip
}

// Findings are the checks of Doctor on a host, and the time by the clock of that host.
type Findings struct {
	Checks []spec.Check `json:"checks"`
	Clock  time.Time    `json:"clock"`
}

// SpawnOrder starts a peer. Peers is the number of peers on its host. Input announces InputParts.
type SpawnOrder struct {
	Env   []string `json:"env"`
	Peers int      `json:"peers"`
	Input bool     `json:"input,omitempty"`
}

// InputPart is a part of the standard input of a peer, or its end if it is empty. The next part
// follows after InputTaken.
type InputPart struct {
	Data []byte `json:"data,omitempty"`
}

// InputTaken reports that a peer has taken an InputPart, or that it takes none any more.
type InputTaken struct {
	Closed bool `json:"closed,omitempty"`
}

// SignalOrder calls process.signal, or process.ask if Ask is set.
type SignalOrder struct {
	Signal syscall.Signal `json:"signal"`
	Ask    bool           `json:"ask,omitempty"`
}

// AskOrder is a request to the control socket of a peer. The AskAnswer has the same Seq.
type AskOrder struct {
	Seq  int    `json:"seq"`
	Line []byte `json:"line"` // the request as the client wrote it
}

// AskAnswer is the answer to the AskOrder with the same Seq.
type AskAnswer struct {
	Seq   int   `json:"seq"`
	Reply Reply `json:"reply"`
}

// OutputPart is a part of an output stream, or its end.
type OutputPart struct {
	To   Target `json:"to"`
	Data []byte `json:"data,omitempty"`
	End  bool   `json:"end,omitempty"`
}

// ExitReport is the wire form of Exit.
type ExitReport struct {
	PID    int            `json:"pid"`
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal,omitempty"`
	// Asked is the signal on which the agent asked the peer to leave.
	Asked syscall.Signal `json:"asked,omitempty"`
}

const (
	// AgentProtocol is the version of the protocol between launcher and agent.
	AgentProtocol = 3
	// maxFrame bounds a line in bytes: the longest reply, and the other parts of a frame with a
	// reply.
	maxFrame = MaxReply + 1<<10
	// MaxPart bounds the bytes of a file or a stream in one frame.
	MaxPart = 256 << 10
)

// ErrFrame reports a line that is no valid frame: the two elruns are of different versions, or
// another program writes to the connection.
var ErrFrame = errors.New("launch: bad frame between launcher and agent (use the same version of elrun on all hosts)")

// decodeFrame decodes one line and checks everything that its reader relies on.
func decodeFrame(line []byte) (Frame, error) {
	var f Frame
	if err := json.Unmarshal(line, &f); err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	// Readers switch on the field that is set, so exactly one field must be set.
	set := 0
	for _, there := range slices.Concat(f.Order.set(), f.Report.set(), []bool{f.Message != nil}) {
		if there {
			set++
		}
	}
	// Check the values that a reader uses as an index, a count or a signal.
	switch {
	case set != 1:
		return Frame{}, fmt.Errorf("%w: %d fields, want one", ErrFrame, set)
	case f.Index < 0 || f.Index >= spec.MaxPeers+spec.MaxNodes:
		return Frame{}, fmt.Errorf("%w: peer %d, want 0 to %d", ErrFrame, f.Index, spec.MaxPeers+spec.MaxNodes-1)
	case f.Output != nil && (f.Output.To < ToStdout || f.Output.To > ToStderr):
		return Frame{}, fmt.Errorf("%w: output stream %d, want %d to %d", ErrFrame, f.Output.To, ToStdout, ToStderr)
	case f.Spawn != nil && (f.Spawn.Peers < 1 || f.Spawn.Peers > spec.MaxPeers):
		return Frame{}, fmt.Errorf("%w: %d peers on a host, want 1 to %d", ErrFrame, f.Spawn.Peers, spec.MaxPeers)
	case f.Exit != nil && f.Exit.Asked < 0:
		return Frame{}, fmt.Errorf("%w: signal %d, want 0 or more", ErrFrame, f.Exit.Asked)
	case f.Signal != nil && f.Signal.Signal <= 0:
		return Frame{}, fmt.Errorf("%w: signal %d, want 1 or more", ErrFrame, f.Signal.Signal)
	}
	if f.Message != nil {
		if err := f.Message.Check(); err != nil {
			return Frame{}, err
		}
	}
	return f, nil
}

// EncodeFrame encodes f as one line.
func EncodeFrame(f Frame) ([]byte, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return append(b, '\n'), nil
}

// FrameReader reads frames. It is not safe for concurrent use.
type FrameReader struct{ scan *bufio.Scanner }

// NewFrameReader returns a FrameReader on r. Lines are at most maxFrame bytes long.
func NewFrameReader(r io.Reader) *FrameReader {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxFrame)
	scan.Split(wholeLine)
	return &FrameReader{scan}
}

// Line returns the next line, valid until the next call. The error is io.EOF after the other
// side's end.
func (f *FrameReader) Line() ([]byte, error) {
	if f.scan.Scan() {
		return f.scan.Bytes(), nil
	}
	if err := f.scan.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil, io.EOF
}

// Next returns the next frame. The error is io.EOF after the other side's end.
func (f *FrameReader) Next() (Frame, error) {
	line, err := f.Line()
	if err != nil {
		return Frame{}, err
	}
	return decodeFrame(line)
}

// FrameWriter writes frames. It is safe for concurrent use. After an error it writes nothing more.
type FrameWriter struct {
	mu  sync.Mutex
	W   io.Writer
	err error
}

// Write writes a frame. It blocks while the reader is slow.
func (w *FrameWriter) Write(f Frame) error {
	line, err := EncodeFrame(f)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_, w.err = w.W.Write(line)
	}
	return w.err
}

// Exit returns the Exit of a peer whose report has just arrived.
func (e ExitReport) Exit(index int) spec.Exit {
	return spec.Exit{Index: index, PID: e.PID, Code: e.Code, Signal: e.Signal, By: e.Asked, At: time.Now()}
}

// ReportOf returns the wire form of an Exit.
func ReportOf(e spec.Exit) *ExitReport {
	return &ExitReport{PID: e.PID, Code: e.Code, Signal: e.Signal, Asked: e.By}
}

// HaltReport says whether process PID is stopped by a signal (state T).
type HaltReport struct {
	PID int  `json:"pid"`
	On  bool `json:"on"`
}

// Target is the destination of a block.
type Target int

// The destinations of a block.
const (
	ToStdout Target = iota
	ToStderr
	ToEvents // the event log of --events
	Targets
)

// String names the target for people.
func (t Target) String() string {
	return [Targets]string{"standard output", "standard error", "event log"}[t]
}

// DoctorPeriod is the time limit of the checks of one host.
const DoctorPeriod = 20 * time.Second

// AgentMark begins the lines that an agent, or the shell that starts it, writes before the first
// frame. Other lines before the first frame are output of the shell, such as a greeting of .bashrc.
const AgentMark = "elrun-agent "

// AgentReady is the last of the lines with AgentMark.
const AgentReady = AgentMark + "ready"

const (
	// BeatPeriod is the interval of a launcher's heartbeats to its agents.
	BeatPeriod = 10 * time.Second
	// SilencePeriod is the heartbeat timeout of an agent without peers. Without a timeout the agent
	// would run on after a network failure, which the kernel reports only after hours.
	SilencePeriod = 6 * BeatPeriod
)
