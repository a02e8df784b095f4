package launch

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
)

// frames returns one frame of each kind.
func frames() []frame {
	self := memberAt(1)
	return []frame{
		{order: order{Begin: &beginOrder{Protocol: 1, Program: "x\xe9", Args: []byteString{"-a", "\xff\xfe", "\x00é"}, Env: []byteString{"A=\xff"}, Dir: "/\xe9", Self: true}}},
		{order: order{Part: &filePart{[]byte{0, 255}}}},
		{order: order{Probe: []hostAddrs{{"b", []string{"192.0.2.1:1/w"}}}}},
		{Index: 3, order: order{Spawn: &spawnOrder{Env: []string{"A=b"}, Peers: 2}}},
		{Index: 3, order: order{Signal: &signalOrder{Signal: syscall.SIGTERM, Ask: true}}},
		{Index: 3, order: order{Spawn: &spawnOrder{Env: []string{}, Peers: 1, Input: true}}},
		{Index: 3, order: order{Input: &inputPart{Data: []byte("x\xff\n")}}},
		{Index: 3, order: order{Input: &inputPart{}}},
		{Index: 3, report: report{Taken: &inputTaken{}}},
		{Index: 3, report: report{Taken: &inputTaken{Closed: true}}},
		{Index: 3, order: order{Look: true}},
		{order: order{Beat: true}},
		{order: order{Doctor: true}},
		{order: order{Ended: &Status{Job: "m", Ended: &Ended{Status: 1, Outcome: "failed"}}}},
		{Index: 3, order: order{Ask: &askOrder{Seq: 2, Line: []byte("{}")}}},
		{Index: 3, report: report{Answer: &askAnswer{Seq: 2, Reply: reply{Scaling: "x"}}}},
		{report: report{Findings: &findings{Checks: []Check{{Level: OK, Name: "cores", Found: "2"}}}}},
		{Index: 3, Message: &message{Hello: &self}, PID: 7},
		{Index: 3, Message: &message{Dead: elastic.ID("x")}},
		{report: report{Ready: &hostInfo{Protocol: 1, Host: "h", System: "linux/arm64", Cores: 4}}},
		{report: report{Need: true}},
		{report: report{Prepared: &preparation{Addrs: []string{"192.0.2.1:1/w"}}}},
		{report: report{Refused: "why"}},
		{report: report{Probed: &probeResult{map[string]string{"b": "refused"}, map[string]linkQuality{"c": {MTU: 1500, RTT: time.Millisecond}}}}},
		{Index: 3, report: report{Output: &outputPart{To: toStderr, Data: []byte("x\n")}}},
		{Index: 3, report: report{Output: &outputPart{End: true}}},
		{Index: 3, report: report{Mistake: "why"}},
		{Index: 3, report: report{Halt: &haltReport{7, true}}},
		{Index: 3, report: report{Dying: "12D3Koo"}},
		{Index: 3, report: report{Exit: &exitReport{PID: 7, Asked: 15}}},
		{Index: 3, report: report{Exit: &exitReport{PID: 7, Code: -1, Signal: syscall.SIGKILL}}},
	}
}

func TestFrames(t *testing.T) {
	var text strings.Builder
	w := frameWriter{w: &text}
	for _, f := range frames() {
		if err := w.write(f); err != nil {
			t.Fatal(err)
		}
	}
	r := newFrameReader(strings.NewReader(text.String() + `{"need":true}`)) // the last line is unfinished
	for _, want := range frames() {
		if got, err := r.next(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, error %v, want %+v", got, err, want)
		}
	}
	if _, err := r.next(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v at the end", err)
	}
}

// The fields of order and report stand beside the others in a line.
func TestFramesAreFlat(t *testing.T) {
	for want, f := range map[string]frame{
		`{"i":3,"look":true}`:                {Index: 3, order: order{Look: true}},
		`{"i":3,"halt":{"pid":7,"on":true}}`: {Index: 3, report: report{Halt: &haltReport{7, true}}},
	} {
		if got, err := encodeFrame(f); err != nil || string(got) != want+"\n" {
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
		line, err := encodeFrame(seed)
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
		again, err := encodeFrame(got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeFrame(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
