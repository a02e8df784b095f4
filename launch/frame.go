package launch

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
)

// frame is a message between a launcher and the agent of a host, one line of JSON. Index is the
// index of the peer that the frame is about. Exactly one of Message and the fields of order and
// report is set; PID belongs to Message or Stopped. The order of the frames is
//
//	launcher  begin ... part ......... probe or doctor ... any of spawn, input, message, signal, look, ask, beat ... ended (end)
//	agent     ready ... need, prepared or refused ... probed or findings ... any of message, output, taken, dying, exit, halt, answer (end)
type frame struct {
	Index int `json:"i,omitempty"`
	order
	// Message is a message between launcher and peer, in both directions. PID is the process ID of
	// the peer.
	Message *message `json:"msg,omitempty"`
	PID     int      `json:"pid,omitempty"`
	report
}

// order is the part of a frame that only launchers send. At most one field is set. A field that
// concerns one peer goes with frame.Index, the index of the peer. An agent that does not know a
// field finds no field set, and ends with errFrame.
type order struct {
	Begin  *beginOrder  `json:"begin,omitempty"`
	Part   *filePart    `json:"part,omitempty"`   // part of the program file
	Probe  []hostAddrs  `json:"probe,omitempty"`  // addresses of the other hosts
	Doctor bool         `json:"doctor,omitempty"` // run Doctor on the host
	Spawn  *spawnOrder  `json:"spawn,omitempty"`
	Signal *signalOrder `json:"signal,omitempty"`
	Look   bool         `json:"look,omitempty"` // report whether the peer is stopped by a signal
	Ask    *askOrder    `json:"ask,omitempty"`
	Input  *inputPart   `json:"in,omitempty"`
	Beat   bool         `json:"beat,omitempty"`  // heartbeat of the launcher
	Ended  *Status      `json:"ended,omitempty"` // record of the job's end
}

// set reports for each field whether it is set.
func (o *order) set() []bool {
	return []bool{o.Begin != nil, o.Part != nil, len(o.Probe) > 0, o.Doctor, o.Spawn != nil, o.Signal != nil, o.Look, o.Ask != nil, o.Input != nil,
		o.Beat, o.Ended != nil}
}

// report is the part of a frame that only agents send. At most one field is set.
type report struct {
	Ready    *hostInfo    `json:"ready,omitempty"`
	Need     bool         `json:"need,omitempty"` // the program is missing: send it
	Prepared *preparation `json:"prepared,omitempty"`
	Refused  string       `json:"refused,omitempty"` // why no peer can be started
	Probed   *probeResult `json:"probed,omitempty"`
	Findings *findings    `json:"findings,omitempty"`
	Output   *outputPart  `json:"out,omitempty"`
	Answer   *askAnswer   `json:"answer,omitempty"`
	Taken    *inputTaken  `json:"taken,omitempty"`
	Mistake  string       `json:"mistake,omitempty"` // a violation of the protocol by the peer
	Halt     *haltReport  `json:"halt,omitempty"`
	Dying    elastic.ID   `json:"dying,omitempty"` // the program that said hello by this ID has ended
	Exit     *exitReport  `json:"exit,omitempty"`  // the last frame of a peer except for output
}

// set reports for each field whether it is set.
func (r *report) set() []bool {
	return []bool{r.Ready != nil, r.Need, r.Prepared != nil, r.Refused != "", r.Probed != nil, r.Findings != nil, r.Output != nil,
		r.Answer != nil, r.Taken != nil, r.Mistake != "", r.Halt != nil, r.Dying != "", r.Exit != nil}
}

// beginOrder describes to an agent the program of the job.
type beginOrder struct {
	Protocol int          `json:"protocol"`
	Job      string       `json:"job"`
	Program  byteString   `json:"program"` // "" if nothing will be started
	Args     []byteString `json:"args"`
	Env      []byteString `json:"env"` // NAME=VALUE, in addition to the environment of the host
	Dir      byteString   `json:"dir"` // working folder; "" for the home folder
	// SHA256 is the hash of the program; "" if it is not checked.
	SHA256 string `json:"sha256,omitempty"`
	Copy   bool   `json:"copy,omitempty"` // the launcher sends the program if it is missing
	Self   bool   `json:"self,omitempty"` // the program is the agent's own executable
	Detach bool   `json:"detach,omitempty"`
	// Grace is Options.Grace of the launcher; 0 if the agent starts no peers.
	Grace time.Duration `json:"grace,omitempty"`
}

// grace returns the time that peers get to end after the end of the launcher.
func (o beginOrder) grace() time.Duration { return cmp.Or(max(o.Grace, 0), defaultGrace) }

// byteString is a string of any bytes. In JSON it is base64: file names, arguments and variables
// need not be UTF-8, and encoding/json would replace their other bytes by U+FFFD.
type byteString string

// MarshalJSON implements json.Marshaler.
func (s byteString) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(s)) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *byteString) UnmarshalJSON(text []byte) error {
	var b []byte
	err := json.Unmarshal(text, &b)
	*s = byteString(b)
	return err
}

// convertStrings returns a copy of a list whose strings are of another type.
func convertStrings[To, From ~string](list []From) []To {
	out := make([]To, len(list))
	for i, s := range list {
		out[i] = To(s)
	}
	return out
}

// filePart is a part of a file. An empty part is the end of the file.
type filePart struct {
	Data []byte `json:"data"`
}

// hostInfo is the first frame of an agent: it describes the host.
type hostInfo struct {
	Protocol int    `json:"protocol"`
	Host     string `json:"host"`   // its own host name, for messages
	System   string `json:"system"` // as in linux/amd64
	Cores    int    `json:"cores"`
}

// preparation reports that the agent has found the working folder and the program, and can start
// peers.
type preparation struct {
	Addrs []string `json:"addrs"` // probe addresses, open until the first spawn
}

// hostAddrs holds the probe addresses of a host.
type hostAddrs struct {
	Host  string   `json:"host"`
	Addrs []string `json:"addrs"`
}

// probeResult has the hosts that an agent cannot connect to, with the cause, and the quality of
// the connections to the other hosts. Keys are names of hosts.
type probeResult struct {
	Failed map[string]string      `json:"failed"`
	Links  map[string]linkQuality `json:"ways,omitempty"`
}

// linkQuality describes the connection from one host to another.
type linkQuality struct {
	MTU int           `json:"mtu,omitempty"` // largest packet in bytes, as the kernel knows it; 0 if unknown
	RTT time.Duration `json:"trip"`          // time to connect: one round trip
}

// findings are the checks of Doctor on a host, and the time by the clock of that host.
type findings struct {
	Checks []Check   `json:"checks"`
	Clock  time.Time `json:"clock"`
}

// spawnOrder starts a peer. Peers is the number of peers on its host. Input announces inputParts.
type spawnOrder struct {
	Env   []string `json:"env"`
	Peers int      `json:"peers"`
	Input bool     `json:"input,omitempty"`
}

// inputPart is a part of the standard input of a peer, or its end if it is empty. The next part
// follows after inputTaken.
type inputPart struct {
	Data []byte `json:"data,omitempty"`
}

// inputTaken reports that a peer has taken an inputPart, or that it takes none any more.
type inputTaken struct {
	Closed bool `json:"closed,omitempty"`
}

// signalOrder calls process.signal, or process.ask if Ask is set.
type signalOrder struct {
	Signal syscall.Signal `json:"signal"`
	Ask    bool           `json:"ask,omitempty"`
}

// askOrder is a request to the control socket of a peer. The askAnswer has the same Seq.
type askOrder struct {
	Seq  int    `json:"seq"`
	Line []byte `json:"line"` // the request as the client wrote it
}

// askAnswer is the answer to the askOrder with the same Seq.
type askAnswer struct {
	Seq   int   `json:"seq"`
	Reply reply `json:"reply"`
}

// outputPart is a part of an output stream, or its end.
type outputPart struct {
	To   target `json:"to"`
	Data []byte `json:"data,omitempty"`
	End  bool   `json:"end,omitempty"`
}

// exitReport is the wire form of Exit.
type exitReport struct {
	PID    int            `json:"pid"`
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal,omitempty"`
	// Asked is the signal on which the agent asked the peer to leave.
	Asked syscall.Signal `json:"asked,omitempty"`
}

const (
	// agentProtocol is the version of the protocol between launcher and agent.
	agentProtocol = 3
	// maxFrame bounds a line in bytes: the longest reply, and the other parts of a frame with a
	// reply.
	maxFrame = maxReply + 1<<10
	// maxPart bounds the bytes of a file or a stream in one frame.
	maxPart = 256 << 10
)

// errFrame reports a line that is no valid frame: the two elruns are of different versions, or
// another program writes to the connection.
var errFrame = errors.New("launch: bad frame between launcher and agent (use the same version of elrun on all hosts)")

// decodeFrame decodes one line and checks everything that its reader relies on.
func decodeFrame(line []byte) (frame, error) {
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		return frame{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	// Readers switch on the field that is set, so exactly one field must be set.
	set := 0
	for _, there := range slices.Concat(f.order.set(), f.report.set(), []bool{f.Message != nil}) {
		if there {
			set++
		}
	}
	// Check the values that a reader uses as an index, a count or a signal.
	switch {
	case set != 1:
		return frame{}, fmt.Errorf("%w: %d fields, want one", errFrame, set)
	case f.Index < 0 || f.Index >= maxPeers+maxNodes:
		return frame{}, fmt.Errorf("%w: peer %d, want 0 to %d", errFrame, f.Index, maxPeers+maxNodes-1)
	case f.Output != nil && (f.Output.To < toStdout || f.Output.To > toStderr):
		return frame{}, fmt.Errorf("%w: output stream %d, want %d to %d", errFrame, f.Output.To, toStdout, toStderr)
	case f.Spawn != nil && (f.Spawn.Peers < 1 || f.Spawn.Peers > maxPeers):
		return frame{}, fmt.Errorf("%w: %d peers on a host, want 1 to %d", errFrame, f.Spawn.Peers, maxPeers)
	case f.Exit != nil && f.Exit.Asked < 0:
		return frame{}, fmt.Errorf("%w: signal %d, want 0 or more", errFrame, f.Exit.Asked)
	case f.Signal != nil && f.Signal.Signal <= 0:
		return frame{}, fmt.Errorf("%w: signal %d, want 1 or more", errFrame, f.Signal.Signal)
	}
	if f.Message != nil {
		if err := f.Message.check(); err != nil {
			return frame{}, err
		}
	}
	return f, nil
}

// encodeFrame encodes f as one line.
func encodeFrame(f frame) ([]byte, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return append(b, '\n'), nil
}

// frameReader reads frames. It is not safe for concurrent use.
type frameReader struct{ scan *bufio.Scanner }

// newFrameReader returns a frameReader on r. Lines are at most maxFrame bytes long.
func newFrameReader(r io.Reader) *frameReader {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxFrame)
	scan.Split(wholeLine)
	return &frameReader{scan}
}

// line returns the next line, valid until the next call. The error is io.EOF after the other
// side's end.
func (r *frameReader) line() ([]byte, error) {
	if r.scan.Scan() {
		return r.scan.Bytes(), nil
	}
	if err := r.scan.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil, io.EOF
}

// next returns the next frame. The error is io.EOF after the other side's end.
func (r *frameReader) next() (frame, error) {
	line, err := r.line()
	if err != nil {
		return frame{}, err
	}
	return decodeFrame(line)
}

// frameWriter writes frames. It is safe for concurrent use. After an error it writes nothing more.
type frameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// write writes a frame. It blocks while the reader is slow.
func (w *frameWriter) write(f frame) error {
	line, err := encodeFrame(f)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_, w.err = w.w.Write(line)
	}
	return w.err
}

// report returns the wire form of an Exit.
func (e Exit) report() *exitReport {
	return &exitReport{PID: e.PID, Code: e.Code, Signal: e.Signal, Asked: e.by}
}

// exit returns the Exit of a peer whose report has just arrived.
func (x exitReport) exit(index int) Exit {
	return Exit{Index: index, PID: x.PID, Code: x.Code, Signal: x.Signal, by: x.Asked, at: time.Now()}
}
