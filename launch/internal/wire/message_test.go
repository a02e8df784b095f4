package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/spec"
)

func TestPipe(t *testing.T) {
	here, there := net.Pipe()
	sent := []Message{
		{Hello: &elastic.Member{ID: "a", Index: 1, Host: "h", Addrs: []string{"/ip4/127.0.0.1/tcp/1"}}},
		{Event: json.RawMessage(`{"event":"x"}`)},
		{Retry: &RetryOrder{Seq: 1, Step: 2, Samples: []int{3}, More: 4, Of: []string{"d"}}}, {Decision: &Decision{1, "x"}}, {Suspect: "b"}, {Scale: &ScaleOrder{Seq: 1, Peers: 2}}, {Scaled: &ScaleResult{Seq: 1, Text: "x"}}, {Dead: "c"},
		{Known: &Known{Epoch: 3, Members: []elastic.Member{{ID: "a"}}}}, {Pass: &Pass{"a", make([]byte, passSize)}},
		{Start: &StartOrder{Peers: []elastic.Member{{ID: "a"}, {ID: "b"}}, Launcher: "l", GroupSettings: GroupSettings{RejoinTimeout: 5}, Sole: true}},
		{Abort: "a\nreason"},
	}
	errs := make(chan error, 1)
	go func() {
		p := NewPipe(here)
		var all []error
		for _, m := range sent {
			all = append(all, send(p, m))
		}
		errs <- errors.Join(append(all, here.Close())...)
	}()
	p := NewPipe(there)
	for _, want := range sent {
		got, err := p.Receive()
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Errorf("got %s, want %s", a, b)
		}
	}
	if _, err := p.Receive(); err != io.EOF {
		t.Errorf("at the end: %v, want EOF", err)
	}
	if err := <-errs; err != nil {
		t.Error(err)
	}
}

// Data that arrived before the deadline can still be read after the deadline. An unfinished line is
// not a message.
func TestPipeAfterDeadline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	out, in := NewPipe(here), NewPipe(there)
	const messages = 1000 // more than one read takes, less than a socket buffers
	for range messages {
		if err := send(out, Message{Event: json.RawMessage(`{"event":"x"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := here.Write([]byte(`{"event":`)); err != nil {
		t.Fatal(err)
	}
	if err := there.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if _, err := in.Receive(); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if _, err := in.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the last message: %v, want the deadline", err)
	}
}

// A peer cannot speak for an agent.
func TestPipeOfAgent(t *testing.T) {
	for _, m := range []Message{{To: 1, Dead: "a"}, {PID: 1, Dead: "a"}, {Report: Report{Exit: &ExitReport{PID: 1}}}, {Order: Order{Beat: true}}} {
		here, there := net.Pipe()
		go func() { _ = send(NewPipe(here), m) }()
		if got, err := NewPipe(there).Receive(); err == nil {
			t.Errorf("received %+v from a peer", got)
		}
		_ = errors.Join(here.Close(), there.Close())
	}
}

// A line without an end takes bounded memory and is an error.
func TestPipeEndlessLine(t *testing.T) {
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		part := bytes.Repeat([]byte("x"), 1<<16)
		for {
			if _, err := here.Write(part); err != nil {
				return
			}
		}
	}()
	if _, err := NewPipe(there).Receive(); err == nil || err == io.EOF || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v, want an error about the length", err)
	}
	_ = there.Close()
	<-done
}

func TestDecodeMessageBad(t *testing.T) {
	many := func(n int) string { return strings.Repeat(`{"id":"a"},`, n-1) + `{"id":"a"}` }
	for _, bad := range []string{"", "x", "{}", "[]", `{"abort":""}`, `{"abort":"a","event":{}}`, `{"hello":{}}`,
		`{"start":{"launcher":"l","host_key":"AAAA"}}`,
		`{"start":{"peers":[{}]}}`, `{"known":{"members":[{}]}}`, `{"start":{"contacts":[{}]}}`, `{"start":{"pass":"AAAA"}}`,
		`{"dead":"a","suspect":"b"}`, `{"for":1,"dead":"a"}`, `{"for":-1,"hello":{"id":"a"}}`, `{"scale":null}`, `{"hello":{"id":"a","addrs":["` + strings.Repeat(`","`, 100) + `"]}}`,
		`{"start":{"peers":[` + many(spec.MaxMembers+1) + `]}}`} {
		if m, err := DecodeMessage([]byte(bad)); err == nil {
			t.Errorf("%.60q: got %+v, want an error", bad, m)
		}
	}
	if _, err := DecodeMessage([]byte(`{"start":{"peers":[` + many(spec.MaxMembers) + `]}}`)); err != nil {
		t.Errorf("%d peers: %v", spec.MaxMembers, err)
	}
}

func TestSendTooLong(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	if err := send(NewPipe(here), Message{Abort: strings.Repeat("x", maxMessage)}); err == nil {
		t.Error("a message longer than a reader takes was sent")
	}
}

// A decoded message is unchanged by encoding and decoding.
func FuzzDecodeMessage(f *testing.F) {
	for _, s := range []string{`{"hello":{"id":"a","index":1,"host":"h","addrs":["/ip4/1.2.3.4/tcp/5"]}}`,
		`{"event":{"event":"step","step":3}}`, `{"start":{"peers":[{"id":"a"}],"any":true}}`, `{"known":{"epoch":4,"members":[{"id":"a"}]}}`, `{"dead":"a"}`,
		`{"suspect":"a"}`, `{"scale":{"seq":1,"peers":2}}`, `{"scaled":{"seq":1,"error":"x"}}`, `{"abort":"why"}`, `{"event":null}`, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := DecodeMessage(line)
		if err != nil {
			return
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("decoded %+v does not encode: %v", m, err)
		}
		again, err := DecodeMessage(b)
		if err != nil {
			t.Fatalf("%s does not decode again: %v", b, err)
		}
		c, _ := json.Marshal(again)
		if !bytes.Equal(b, c) {
			t.Fatalf("first %s, then %s", b, c)
		}
	})
}

// send writes a message.
func send(p *Pipe, m Message) error {
	line, err := Encode(m)
	if err != nil {
		return err
	}
	return p.Write(line)
}
