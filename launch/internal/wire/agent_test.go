package wire

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
)

// agentMessages returns one message of each kind between launcher and agent.
func agentMessages() []Message {
	self := elastic.Member{ID: "12D3KooW-peer-b", Index: 1, Host: "host"}
	return []Message{
		{Order: Order{Begin: &BeginOrder{Protocol: 1, Program: "x\xe9", Args: []Bytes{"-a", "\xff\xfe", "\x00é"}, Env: []Bytes{"A=\xff"}, Dir: "/\xe9", Self: true}}},
		{Order: Order{Part: &FilePart{[]byte{0, 255}}}},
		{Order: Order{Probe: []HostAddrs{{"b", []string{"192.0.2.1:1/w"}}}}},
		{To: 3, Order: Order{Spawn: &SpawnOrder{Env: []string{"A=b"}, Peers: 2}}},
		{To: 3, Order: Order{Signal: &SignalOrder{Signal: syscall.SIGTERM, Ask: true}}},
		{To: 3, Order: Order{Spawn: &SpawnOrder{Env: []string{}, Peers: 1, Input: true}}},
		{To: 3, Order: Order{Input: &InputPart{Data: []byte("x\xff\n")}}},
		{To: 3, Order: Order{Input: &InputPart{}}},
		{To: 3, Report: Report{Taken: &InputTaken{}}},
		{To: 3, Report: Report{Taken: &InputTaken{Closed: true}}},
		{To: 3, Order: Order{Look: true}},
		{Order: Order{Beat: true}},
		{Order: Order{Doctor: true}},
		{Order: Order{Ended: &spec.Status{Job: "m", Ended: &spec.Ended{Status: 1, Outcome: "failed"}}}},
		{To: 3, Order: Order{Ask: &AskOrder{Seq: 2, Request: Request{Request: "stop"}}}},
		{To: 3, Report: Report{Answer: &AskAnswer{Seq: 2, Reply: Reply{Scaling: "x"}}}},
		{Report: Report{Findings: &Findings{Checks: []spec.Check{{Level: spec.OK, Name: "cores", Found: "2"}}}}},
		{To: 3, PID: 7, Hello: &self},
		{To: 3, Dead: elastic.ID("x")},
		{Report: Report{Ready: &HostInfo{Protocol: 1, Host: "h", System: "linux/arm64", Cores: 4}}},
		{Report: Report{Need: true}},
		{Report: Report{Prepared: &Preparation{Addrs: []string{"192.0.2.1:1/w"}}}},
		{Report: Report{Refused: "why"}},
		{Report: Report{Probed: &ProbeResult{map[string]string{"b": "refused"}, map[string]LinkQuality{"c": {MTU: 1500, RTT: time.Millisecond}}}}},
		{To: 3, Report: Report{Output: &OutputPart{To: ToStderr, Data: []byte("x\n")}}},
		{To: 3, Report: Report{Output: &OutputPart{End: true}}},
		{To: 3, Report: Report{Mistake: "why"}},
		{To: 3, Report: Report{Halt: &HaltReport{7, true}}},
		{To: 3, Report: Report{Dying: "12D3Koo"}},
		{To: 3, Report: Report{Remains: &flight.Record{Version: flight.Version, Ended: true}}},
		{To: 3, Report: Report{Exit: &ExitReport{PID: 7, Asked: 15}}},
		{To: 3, Report: Report{Exit: &ExitReport{PID: 7, Code: -1, Signal: syscall.SIGKILL}}},
	}
}

func TestAgentMessages(t *testing.T) {
	var text strings.Builder
	w := Writer{W: &text}
	for _, f := range agentMessages() {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	r := NewMessages(strings.NewReader(text.String() + `{"need":true}`)) // the last line is unfinished
	for _, want := range agentMessages() {
		if got, err := r.Next(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, error %v, want %+v", got, err, want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v at the end", err)
	}
}

// A message of an agent, or to one, is a message between launcher and peer with the index of the peer.
func TestAgentMessagesAreFlat(t *testing.T) {
	for want, f := range map[string]Message{
		`{"i":3,"look":true}`:                {To: 3, Order: Order{Look: true}},
		`{"i":3,"pid":7,"dead":"x"}`:         {To: 3, PID: 7, Dead: "x"},
		`{"i":3,"halt":{"pid":7,"on":true}}`: {To: 3, Report: Report{Halt: &HaltReport{7, true}}},
	} {
		if got, err := Encode(f); err != nil || string(got) != want+"\n" {
			t.Errorf("got %s, error %v, want %s", got, err, want)
		}
	}
}

func TestBadAgentMessages(t *testing.T) {
	for _, line := range []string{"", "{", "{}", `{"need":true,"look":true}`, `{"i":-1,"need":true}`, `{"i":9999,"need":true}`,
		`{"out":{"to":2}}`, `{"out":{"to":-1}}`, `{"spawn":{"peers":0}}`, `{"probe":[]}`, `{"found":[]}`, `{"signal":{"signal":0}}`, `{"i":3,"dead":"x","look":true}`} {
		if f, err := DecodeMessage([]byte(line)); err == nil {
			t.Errorf("%s: %+v, no error", line, f)
		}
	}
}

func FuzzAgentMessage(f *testing.F) {
	for _, seed := range agentMessages() {
		line, err := Encode(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := DecodeMessage(line)
		if err != nil {
			return
		}
		again, err := Encode(got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeMessage(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
