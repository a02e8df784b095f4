package wire

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
)

// frames returns one frame of each kind.
func frames() []Frame {
	self := elastic.Member{ID: "12D3KooW-peer-b", Index: 1, Host: "host"}
	return []Frame{
		{Order: Order{Begin: &BeginOrder{Protocol: 1, Program: "x\xe9", Args: []Bytes{"-a", "\xff\xfe", "\x00é"}, Env: []Bytes{"A=\xff"}, Dir: "/\xe9", Self: true}}},
		{Order: Order{Part: &FilePart{[]byte{0, 255}}}},
		{Order: Order{Probe: []HostAddrs{{"b", []string{"192.0.2.1:1/w"}}}}},
		{Index: 3, Order: Order{Spawn: &SpawnOrder{Env: []string{"A=b"}, Peers: 2}}},
		{Index: 3, Order: Order{Signal: &SignalOrder{Signal: syscall.SIGTERM, Ask: true}}},
		{Index: 3, Order: Order{Spawn: &SpawnOrder{Env: []string{}, Peers: 1, Input: true}}},
		{Index: 3, Order: Order{Input: &InputPart{Data: []byte("x\xff\n")}}},
		{Index: 3, Order: Order{Input: &InputPart{}}},
		{Index: 3, Report: Report{Taken: &InputTaken{}}},
		{Index: 3, Report: Report{Taken: &InputTaken{Closed: true}}},
		{Index: 3, Order: Order{Look: true}},
		{Order: Order{Beat: true}},
		{Order: Order{Doctor: true}},
		{Order: Order{Ended: &spec.Status{Job: "m", Ended: &spec.Ended{Status: 1, Outcome: "failed"}}}},
		{Index: 3, Order: Order{Ask: &AskOrder{Seq: 2, Line: []byte("{}")}}},
		{Index: 3, Report: Report{Answer: &AskAnswer{Seq: 2, Reply: Reply{Scaling: "x"}}}},
		{Report: Report{Findings: &Findings{Checks: []spec.Check{{Level: spec.OK, Name: "cores", Found: "2"}}}}},
		{Index: 3, Message: &Message{Hello: &self}, PID: 7},
		{Index: 3, Message: &Message{Dead: elastic.ID("x")}},
		{Report: Report{Ready: &HostInfo{Protocol: 1, Host: "h", System: "linux/arm64", Cores: 4}}},
		{Report: Report{Need: true}},
		{Report: Report{Prepared: &Preparation{Addrs: []string{"192.0.2.1:1/w"}}}},
		{Report: Report{Refused: "why"}},
		{Report: Report{Probed: &ProbeResult{map[string]string{"b": "refused"}, map[string]LinkQuality{"c": {MTU: 1500, RTT: time.Millisecond}}}}},
		{Index: 3, Report: Report{Output: &OutputPart{To: ToStderr, Data: []byte("x\n")}}},
		{Index: 3, Report: Report{Output: &OutputPart{End: true}}},
		{Index: 3, Report: Report{Mistake: "why"}},
		{Index: 3, Report: Report{Halt: &HaltReport{7, true}}},
		{Index: 3, Report: Report{Dying: "12D3Koo"}},
		{Index: 3, Report: Report{Exit: &ExitReport{PID: 7, Asked: 15}}},
		{Index: 3, Report: Report{Exit: &ExitReport{PID: 7, Code: -1, Signal: syscall.SIGKILL}}},
	}
}

func TestFrames(t *testing.T) {
	var text strings.Builder
	w := FrameWriter{W: &text}
	for _, f := range frames() {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	r := NewFrameReader(strings.NewReader(text.String() + `{"need":true}`)) // the last line is unfinished
	for _, want := range frames() {
		if got, err := r.Next(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, error %v, want %+v", got, err, want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v at the end", err)
	}
}

// The fields of order and report stand beside the others in a line.
func TestFramesAreFlat(t *testing.T) {
	for want, f := range map[string]Frame{
		`{"i":3,"look":true}`:                {Index: 3, Order: Order{Look: true}},
		`{"i":3,"halt":{"pid":7,"on":true}}`: {Index: 3, Report: Report{Halt: &HaltReport{7, true}}},
	} {
		if got, err := EncodeFrame(f); err != nil || string(got) != want+"\n" {
			t.Errorf("got %s, error %v, want %s", got, err, want)
		}
	}
}

func TestBadFrames(t *testing.T) {
	for _, line := range []string{"", "{", "{}", `{"need":true,"look":true}`, `{"i":-1,"need":true}`, `{"i":9999,"need":true}`,
		`{"out":{"to":2}}`, `{"out":{"to":-1}}`, `{"spawn":{"peers":0}}`, `{"signal":{"signal":0}}`, `{"msg":{}}`} {
		if f, err := decodeFrame([]byte(line)); err == nil {
			t.Errorf("%s: %+v, no error", line, f)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, seed := range frames() {
		line, err := EncodeFrame(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := decodeFrame(line)
		if err != nil {
			return
		}
		again, err := EncodeFrame(got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeFrame(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
