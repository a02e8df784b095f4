package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
)

// Order is the part of a message that only launchers send, to agents. At most one field is set. A field
// that concerns one peer goes with Message.To, the index of the peer.
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

// check returns an error for a number that its reader does not take.
func (o Order) check() error {
	switch {
	case o.Spawn != nil && (o.Spawn.Peers < 1 || o.Spawn.Peers > spec.MaxPeers):
		return fmt.Errorf("%d peers on a host, want 1 to %d", o.Spawn.Peers, spec.MaxPeers)
	case o.Signal != nil && o.Signal.Signal <= 0:
		return fmt.Errorf("signal %d, want 1 or more", o.Signal.Signal)
	}
	return nil
}

// Report is the part of a message that only agents send. At most one field is set.
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
	// Remains has the calls of a peer that has failed.
	Remains *flight.Record `json:"remains,omitempty"`
	Exit    *ExitReport    `json:"exit,omitempty"` // the last message of a peer except for output
}

// check returns an error for a number that its reader does not take.
func (r Report) check() error {
	switch {
	case r.Output != nil && (r.Output.To < ToStdout || r.Output.To > ToStderr):
		return fmt.Errorf("output stream %d, want %d to %d", r.Output.To, ToStdout, ToStderr)
	case r.Exit != nil && r.Exit.Asked < 0:
		return fmt.Errorf("signal %d, want 0 or more", r.Exit.Asked)
	case r.Remains != nil:
		return r.Remains.Check()
	}
	return nil
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

// HostInfo is the first message of an agent: it describes the host.
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
	Seq     int     `json:"seq"`
	Request Request `json:"request"`
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
	// Ran, CPU and MaxRSS are those of Exit.
	Ran    time.Duration `json:"ran,omitempty"`
	CPU    time.Duration `json:"cpu,omitempty"`
	MaxRSS int64         `json:"max_rss,omitempty"`
}

const (
	// AgentProtocol is the version of the protocol between launcher and agent.
	AgentProtocol = 4
	// MaxPart bounds the bytes of a file or a stream in one message.
	MaxPart = 256 << 10
)

// Exit returns the Exit of a peer whose report has just arrived.
func (e ExitReport) Exit(index int) spec.Exit {
	return spec.Exit{Index: index, PID: e.PID, Code: e.Code, Signal: e.Signal, By: e.Asked, At: time.Now(), Ran: e.Ran, CPU: e.CPU, MaxRSS: e.MaxRSS}
}

// ReportOf returns the wire form of an Exit.
func ReportOf(e spec.Exit) *ExitReport {
	return &ExitReport{PID: e.PID, Code: e.Code, Signal: e.Signal, Asked: e.By, Ran: e.Ran, CPU: e.CPU, MaxRSS: e.MaxRSS}
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
// message. Other lines before the first message are output of the shell, such as a greeting of .bashrc.
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
