package launch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
)

// frame is a line between a launcher and the agent of a host; Index is that of the peer that
// it is about, and of the other fields exactly one is set. The order is
//
//	launcher  begin ... part ......... probe or doctor ... any of spawn, message, signal, suspect, ask, beat ... ended (end)
//	agent     ready ... need, prepared or refused ... probed or findings ... any of message, output, exit, stopped, answer (end)
type frame struct {
	Index int `json:"i,omitempty"`

	Begin   *beginOrder  `json:"begin,omitempty"`
	Part    *filePart    `json:"part,omitempty"`   // of the program
	Probe   []hostAddrs  `json:"probe,omitempty"`  // of the other hosts
	Doctor  bool         `json:"doctor,omitempty"` // try out what jobs use there
	Spawn   *spawnOrder  `json:"spawn,omitempty"`
	Signal  *signalOrder `json:"signal,omitempty"`
	Suspect bool         `json:"suspect,omitempty"` // end the peer if it is stopped
	Ask     *askOrder    `json:"ask,omitempty"`
	Beat    bool         `json:"beat,omitempty"`  // the launcher lives
	Ended   *Status      `json:"ended,omitempty"` // how the job ended, to be kept

	// Message goes both ways: what the launcher and the peer say to each other. PID is that
	// of the peer's process.
	Message *message `json:"msg,omitempty"`
	PID     int      `json:"pid,omitempty"`

	Ready    *hostInfo    `json:"ready,omitempty"`
	Need     bool         `json:"need,omitempty"` // the program is not here: send it
	Prepared *preparation `json:"prepared,omitempty"`
	Refused  string       `json:"refused,omitempty"` // why nothing can be started
	Probed   *probeResult `json:"probed,omitempty"`
	Findings *findings    `json:"findings,omitempty"`
	Output   *outputPart  `json:"out,omitempty"`
	Answer   *askAnswer   `json:"answer,omitempty"`
	Mistake  string       `json:"mistake,omitempty"` // why the peer lost its connection
	Stopped  bool         `json:"stopped,omitempty"` // the peer with PID was, and is being killed
	Exit     *exitReport  `json:"exit,omitempty"`    // the last frame of a peer but output
}

// beginOrder tells an agent what it will start.
type beginOrder struct {
	Protocol int      `json:"protocol"`
	Job      string   `json:"job"`
	Program  string   `json:"program"` // "" if nothing is to be started
	Args     []string `json:"args"`
	Env      []string `json:"env"` // NAME=VALUE, over those of the host
	Dir      string   `json:"dir"` // working folder; "" for the home
	// SHA256 is the hash of the program; "" if it is not compared.
	SHA256 string `json:"sha256,omitempty"`
	Copy   bool   `json:"copy,omitempty"` // the launcher sends the program where it is missing
	Self   bool   `json:"self,omitempty"` // the program is the agent's
	Detach bool   `json:"detach,omitempty"`
}

// filePart is a part of a file; the last one is empty.
type filePart struct {
	Data []byte `json:"data"`
}

// hostInfo is the first word of an agent.
type hostInfo struct {
	Protocol int    `json:"protocol"`
	Host     string `json:"host"`
	System   string `json:"system"` // as in linux/amd64
	Cores    int    `json:"cores"`
}

// preparation says that peers can be started.
type preparation struct {
	Addrs []string `json:"addrs"` // at which the host takes a connection until the first spawn
}

// hostAddrs are the addresses of a host.
type hostAddrs struct {
	Host  string   `json:"host"`
	Addrs []string `json:"addrs"`
}

// probeResult says which hosts an agent cannot connect to, and why, and what the way to each of
// the others is like.
type probeResult struct {
	Failed map[string]string `json:"failed"`
	Ways   map[string]way    `json:"ways,omitempty"`
}

// way is what is known of the way from one host to another.
type way struct {
	MTU  int           `json:"mtu,omitempty"` // bytes of the largest packet, as the system knows it; 0 if it does not tell
	Trip time.Duration `json:"trip"`          // that a connection took, a round trip
}

// findings are what Doctor has found on a host, at a time by its clock.
type findings struct {
	Checks []Check   `json:"checks"`
	Clock  time.Time `json:"clock"`
}

// spawnOrder has a peer started, one of Peers on its host.
type spawnOrder struct {
	Env   []string `json:"env"`
	Peers int      `json:"peers"`
}

// signalOrder is a call of process.signal or process.ask.
type signalOrder struct {
	Signal syscall.Signal `json:"signal"`
	Ask    bool           `json:"ask,omitempty"`
}

// askOrder is a request to the control socket of a peer; askAnswer of the same Seq answers.
type askOrder struct {
	Seq  int    `json:"seq"`
	Line []byte `json:"line"`
}

// askAnswer is the answer to the askOrder of the same Seq.
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

// exitReport is an Exit on its way.
type exitReport struct {
	PID    int            `json:"pid"`
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal,omitempty"`
	// Asked is the signal to the agent by which it has asked the peer to leave.
	Asked syscall.Signal `json:"asked,omitempty"`
}

const (
	// agentProtocol is the version of what launcher and agent say to each other.
	agentProtocol = 1
	// maxFrame bounds a line: a message or an answer, and the rest.
	maxFrame = maxReply + 1<<10
	// maxPart bounds what a frame has of a file or a stream, in bytes.
	maxPart = 256 << 10
)

var errFrame = errors.New("launch: bad frame between launcher and agent")

// decodeFrame reads one line and checks all that a reader relies on.
func decodeFrame(line []byte) (frame, error) {
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		return frame{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	set := 0
	for _, there := range []bool{f.Begin != nil, f.Part != nil, len(f.Probe) > 0, f.Doctor, f.Spawn != nil, f.Signal != nil, f.Suspect, f.Beat, f.Ended != nil, f.Ask != nil,
		f.Message != nil, f.Ready != nil, f.Need, f.Prepared != nil, f.Refused != "", f.Probed != nil, f.Findings != nil, f.Output != nil,
		f.Answer != nil, f.Mistake != "", f.Stopped, f.Exit != nil} {
		if there {
			set++
		}
	}
	switch {
	case set != 1:
		return frame{}, fmt.Errorf("%w: %d fields, want one", errFrame, set)
	case f.Index < 0 || f.Index >= maxPeers+maxNodes:
		return frame{}, fmt.Errorf("%w: peer %d, want 0 to %d", errFrame, f.Index, maxPeers+maxNodes-1)
	case f.Output != nil && (f.Output.To < toStdout || f.Output.To > toStderr):
		return frame{}, fmt.Errorf("%w: output stream %d", errFrame, f.Output.To)
	case f.Spawn != nil && (f.Spawn.Peers < 1 || f.Spawn.Peers > maxPeers):
		return frame{}, fmt.Errorf("%w: %d peers on a host", errFrame, f.Spawn.Peers)
	case f.Exit != nil && f.Exit.Asked < 0:
		return frame{}, fmt.Errorf("%w: signal %d", errFrame, f.Exit.Asked)
	case f.Signal != nil && f.Signal.Signal <= 0:
		return frame{}, fmt.Errorf("%w: signal %d", errFrame, f.Signal.Signal)
	}
	if f.Message != nil {
		if err := f.Message.check(); err != nil {
			return frame{}, err
		}
	}
	return f, nil
}

// encodeFrame returns f as a line.
func encodeFrame(f frame) ([]byte, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return append(b, '\n'), nil
}

// frameReader reads frames.
type frameReader struct{ scan *bufio.Scanner }

func newFrameReader(r io.Reader) *frameReader {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxFrame)
	scan.Split(wholeLine)
	return &frameReader{scan}
}

// line returns the next line, or an error; io.EOF is the other side's end.
func (r *frameReader) line() ([]byte, error) {
	if r.scan.Scan() {
		return r.scan.Bytes(), nil
	}
	if err := r.scan.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil, io.EOF
}

// next returns the next frame.
func (r *frameReader) next() (frame, error) {
	line, err := r.line()
	if err != nil {
		return frame{}, err
	}
	return decodeFrame(line)
}

// frameWriter writes frames, from any goroutine. After an error it writes nothing more.
type frameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// write writes a frame. It waits for a reader that is slow.
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

// report returns an Exit as a frame has it.
func (e Exit) report() *exitReport {
	return &exitReport{PID: e.PID, Code: e.Code, Signal: e.Signal, Asked: e.by}
}

// exit returns the Exit of a peer that was told just now.
func (x exitReport) exit(index int) Exit {
	return Exit{Index: index, PID: x.PID, Code: x.Code, Signal: x.Signal, by: x.Asked, at: time.Now()}
}
