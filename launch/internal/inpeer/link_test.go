package inpeer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// launcher is the launcher's end of an agent's connection.
type launcher struct {
	*wire.Pipe
	exited chan int
}

// newTestAgent returns an agent and the launcher's end of its connection, for the test. Call it in
// a synctest bubble.
func newTestAgent() (*Link, launcher) {
	here, there := net.Pipe()
	l := launcher{wire.NewPipe(there), make(chan int, 1)}
	return newLink(here, func(status int) { l.exited <- status }), l
}

// startMessage returns the order for a group of one.
func startMessage() wire.Message {
	return wire.Message{Start: &wire.StartOrder{Peers: []elastic.Member{testMember(0)}, PID: 77}}
}

// serve reads hello, sends answer, then reads n messages.
func (l launcher) serve(t *testing.T, answer wire.Message, n int) <-chan []wire.Message {
	t.Helper()
	out := make(chan []wire.Message, 1)
	go func() {
		var got []wire.Message
		if _, err := l.Receive(); err == nil {
			err = send(l.Pipe, answer)
			for range n {
				var m wire.Message
				if m, err = l.Receive(); err == nil {
					got = append(got, m)
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
		out <- got
	}()
	return out
}

func TestAgentJoinsAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		got := l.serve(t, startMessage(), 2)
		order, err := a.Hello(t.Context(), "job", testMember(0))
		if err != nil || len(order.Peers) != 1 {
			t.Fatalf("got %v, %v", order, err)
		}
		a.Emit(viewOf(1, testID(0).Short()))
		a.Emit(event.Event{Step: 4, Body: event.Step{}})
		for i, m := range <-got {
			if !strings.Contains(string(m.Event), []string{`"view"`, `"step"`}[i]) {
				t.Errorf("message %d: %+v", i, m)
			}
		}
		if s := a.status(); s.Step != 4 || s.Job != "job" {
			t.Errorf("status %+v", s)
		}
		if err := errors.Join(a.Close(), a.Close()); err != nil {
			t.Error(err)
		}
		a.Emit(event.Event{Body: event.Done{}}) // must not hang or panic
		<-time.After(time.Minute)
		select {
		case <-l.exited:
			t.Error("exit while the launcher lives")
		default:
		}
		_ = l.Conn.Close() // the launcher dies after the group has closed
		if status := <-l.exited; status != 1 {
			t.Errorf("exit %d", status)
		}
	})
}

// Close sends everything that was emitted before it, even if the launcher is slow.
func TestAgentFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		const n = 500
		got := l.serve(t, startMessage(), n)
		if _, err := a.Hello(t.Context(), "job", testMember(0)); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			a.Emit(event.Event{Step: int64(i + 1), Body: event.Step{}})
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for i, m := range <-got {
			if want := fmt.Sprintf(`"step":%d,`, i+1); !strings.Contains(string(m.Event), want) {
				t.Fatalf("event %d is %s", i, m.Event)
			}
		}
		_ = l.Conn.Close()
	})
}

// sending counts the bytes written to a connection.
type sending struct {
	net.Conn
	messages atomic.Int32
}

func (s *sending) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.messages.Add(1)
	return n, err
}

// Emit returns only after the event has been sent, because this process may be killed right
// afterwards.
func TestAgentSendsFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	here, there := net.Pipe()
	conn, l := &sending{Conn: here}, launcher{wire.NewPipe(there), make(chan int, 1)}
	a := newLink(conn, func(int) {})
	const n = 500
	got := l.serve(t, startMessage(), n)
	if _, err := a.Hello(t.Context(), "job", testMember(0)); err != nil {
		t.Fatal(err)
	}
	before, late := conn.messages.Load(), 0
	for i := range int32(n) {
		if a.Emit(event.Event{Body: event.Step{}}); conn.messages.Load() < before+i+1 {
			late++
		}
		for conn.messages.Load() < before+i+1 { // otherwise the next Emit would not wait
			runtime.Gosched()
		}
	}
	if late > n/4 { // if Emit did not wait, half would be late; some wait for a core longer than emitWait
		t.Errorf("%d of %d events were sent after Emit", late, n)
	}
	<-got
	_ = a.Close()
	_ = l.Conn.Close()
}

// A stopped launcher does not count as dead and delays no step. When it reads again, it gets a
// message about dropped events, and all events that the job's result needs.
func TestAgentLauncherStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		<-heard(l, a, t)
		begin := time.Now()
		const steps = 10_000 // more than telemetry's bound
		for range steps {
			a.Emit(event.Event{Body: event.Step{}})
		}
		const losses = 300 // more than the bound of history
		for range losses {
			a.Emit(event.Event{Body: event.Lost{Who: strings.Repeat("x", 64<<10)}})
		}
		a.Emit(event.Event{Body: event.Done{SHA256: "abcd"}})
		if took := time.Since(begin); took > 2*emitWait {
			t.Errorf("emitting took %v", took)
		}
		closed := make(chan struct{})
		go func() {
			_ = a.Close()
			close(closed)
		}()
		<-time.After(24 * time.Hour)
		select {
		case <-closed:
			t.Error("closed before the launcher had read the result")
		case <-a.LauncherGone.Done():
			t.Error("the launcher is taken for dead")
		default:
		}
		seen, dropped, last := 0, 0, ""
		for last != "done" {
			m, err := l.Receive()
			if err != nil {
				t.Fatal(err)
			}
			var e event.Event
			if err := e.UnmarshalJSON(m.Event); err != nil {
				t.Fatal(err)
			}
			switch b := e.Body.(type) {
			case event.Step, event.Lost:
				seen++
			case event.Dropped:
				dropped += b.Events
			case event.Done:
				last = b.Name()
			}
		}
		if dropped == 0 || seen+dropped != steps+losses {
			t.Errorf("%d of %d events, %d are said to be dropped", seen, steps+losses, dropped)
		}
		<-closed
		_ = l.Conn.Close()
	})
}

// heard lets the peer join and collects the messages to the launcher.
func heard(l launcher, a *Link, t *testing.T) <-chan []wire.Message {
	got := l.serve(t, startMessage(), 0)
	if _, err := a.Hello(t.Context(), "job", testMember(0)); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAgentLauncherDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		<-heard(l, a, t)
		begin := time.Now()
		_ = l.Conn.Close()
		<-a.LauncherGone.Done()
		if status := <-l.exited; status != 1 || time.Since(begin) != exitDelay {
			t.Errorf("exit %d after %v", status, time.Since(begin))
		}
		_ = a.Close()
	})
}

func TestAgentToldToGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		l.serve(t, wire.Message{Abort: "peer 1 exited with status 3"}, 0)
		_, err := a.Hello(t.Context(), "job", testMember(0))
		if !errors.Is(err, ErrLauncher) || !strings.Contains(err.Error(), "status 3") {
			t.Errorf("got %v", err)
		}
		_ = a.Close()
		_ = l.Conn.Close()
	})
}

func TestAgentHelloCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = l.Receive()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Hello(ctx, "job", testMember(0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		<-read
		_ = a.Close()
		_ = l.Conn.Close()
	})
}

func TestOpenAgentBadFD(t *testing.T) {
	if _, err := OpenLink(1 << 19); err == nil || !strings.Contains(err.Error(), "ELRUN_FD") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

// Deaths that were reported before there was a group are passed to watchDead.
func TestAgentDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		<-heard(l, a, t)
		var got []elastic.ID
		tell := func(id elastic.ID) {
			if err := send(l.Pipe, wire.Message{Dead: id}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		tell("first")
		if !a.isDead("first") || a.isDead("second") {
			t.Error("the wrong one is dead")
		}
		a.watchDead(func(id elastic.ID) { got = append(got, id) })
		tell("second")
		if len(got) != 2 || got[0] != "first" || got[1] != "second" {
			t.Errorf("got %v", got)
		}
		_ = l.Conn.Close()
		_ = a.Close()
	})
}

// All requests and reports of the peer arrive: a suspicion, a new ID, its knowledge of the group.
func TestAgentTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		got := l.serve(t, startMessage(), 3)
		if _, err := a.Hello(t.Context(), "job", testMember(0)); err != nil {
			t.Fatal(err)
		}
		a.suspect("someone")
		a.renew(testMember(1))
		a.Post(wire.Message{Known: &wire.Known{Epoch: 3}}, wire.History)
		m := <-got
		if m[0].Suspect != "someone" || m[1].Renew == nil || m[1].Renew.ID != testID(1) || m[2].Known == nil {
			t.Errorf("got %+v", m)
		}
		if s := a.status(); s.Members[0].ID != testID(1).Short() || s.Members[0].Launcher != 77 {
			t.Errorf("status %+v", s)
		}
		_ = l.Conn.Close()
		_ = a.Close()
	})
}

func TestAgentScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newTestAgent()
		<-heard(l, a, t)
		// Send three answers: to no request, late to the first request, and to the second request.
		go func() {
			for _, answer := range []wire.ScaleResult{{Seq: 9, Text: "stale"}, {Seq: 2, Text: "fine"}, {Seq: 3, Error: "no"}} {
				if m, err := l.Receive(); err != nil || m.Scale == nil {
					t.Errorf("got %+v, %v", m, err)
				}
				if err := send(l.Pipe, wire.Message{Scaled: &answer}); err != nil {
					t.Error(err)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.scale(ctx, spec.Host{Slots: 5}); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("without an answer: %v", err)
		}
		if text, err := a.scale(t.Context(), spec.Host{Slots: 6}); text != "fine" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		if _, err := a.scale(t.Context(), spec.Host{Slots: 7}); err == nil || err.Error() != "no" {
			t.Errorf("refused: %v", err)
		}
		_ = l.Conn.Close()
		<-a.LauncherGone.Done()
		if _, err := a.scale(t.Context(), spec.Host{Slots: 8}); !errors.Is(err, errNoLauncher) {
			t.Errorf("without a launcher: %v", err)
		}
		_ = a.Close()
	})
}

// send writes a message.
func send(p *wire.Pipe, m wire.Message) error {
	line, err := wire.Encode(m)
	if err != nil {
		return err
	}
	return p.Write(line)
}

// The launcher's message about found members reaches the search of its peers.
func TestFoundMessage(t *testing.T) {
	line, err := wire.Encode(wire.Message{Found: []elastic.Member{foundAt("a", 1), foundAt("b", 2)}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := wire.DecodeMessage(line)
	if err != nil {
		t.Fatal(err)
	}
	p, a := &peer{}, &Link{}
	a.dispatch(m) // before watchFound
	a.watchFound(p.found.add)
	a.dispatch(m)
	if got := p.found.members(); len(got) != 2 {
		t.Errorf("found %v", got)
	}
	for _, bad := range []string{`{"found":[{"id":""}]}`, `{"found":[]}`} {
		if _, err := wire.DecodeMessage([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	k := wire.Known{Tickets: make([]wire.OpenTicket, wire.MaxTickets+1)}
	line, err = wire.Encode(wire.Message{Known: &k})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.DecodeMessage(line); err == nil {
		t.Error("any number of tickets is taken")
	}
}

// A peer waits for the answer to its own request, and not for ever: the launcher may be stopped or dead.
func TestAgentRetries(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(l launcher, seq int)
		want   string
	}{
		"allowed": {func(l launcher, seq int) {
			_ = send(l.Pipe, wire.Message{Decision: &wire.Decision{Seq: seq - 1, Mistake: "late"}})
			_ = send(l.Pipe, wire.Message{Decision: &wire.Decision{Seq: seq}})
		}, ""},
		"refused": {func(l launcher, seq int) {
			_ = send(l.Pipe, wire.Message{Decision: &wire.Decision{Seq: seq, Mistake: "bad"}})
		}, "bad"},
		"stopped": {func(launcher, int) {}, ""},
		"dead":    {func(l launcher, _ int) { _ = l.Conn.Close() }, ""},
		"the end": {func(launcher, int) {}, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, l := newTestAgent()
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					m, err := l.Receive()
					if err != nil || m.Retry == nil || m.Retry.Step != 3 || len(m.Retry.Samples) != wire.MaxRetrySamples || m.Retry.More != 6 || m.Retry.Of[0] != "87654321" {
						t.Errorf("got %+v, %v", m.Retry, err)
						return
					}
					c.answer(l, m.Retry.Seq)
					if c.want == "cancelled" {
						cancel(errors.New("cancelled"))
					}
				}()
				_, err := a.retry(ctx, elastic.Retry{Step: 3, Samples: make([]int, wire.MaxRetrySamples+6), Of: []elastic.ID{"x-87654321"}})
				if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
					t.Errorf("got %v, want %q", err, c.want)
				}
				_ = l.Conn.Close()
				_ = a.Close()
				<-l.exited // exitDelay after the end of the launcher
			})
		})
	}
}

func TestServiceErrors(t *testing.T) {
	var s ctl.Services
	s.Scale = func(context.Context, spec.Host) (string, error) { return "", errNoLauncher }
	s.Ticket = func(context.Context, wire.Request) (spec.Ticket, error) {
		return spec.Ticket{}, errors.New("no member")
	}
	s.Revoke = func(context.Context, string) (string, error) { return "", errors.New("no such ticket") }
	s.Kick = func(context.Context, string) (string, error) { return "", errors.New("no such peer") }
	for what, want := range map[string]string{"scale": "has ended", "ticket": "no member", "revoke": "no such ticket", "kick": "no such peer"} {
		if r, err := s.Answer(t.Context(), wire.Request{Request: what}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}

func testID(i int) elastic.ID { return elastic.ID("12D3KooW-peer-" + string(rune('a'+i))) }

// testMember returns a made-up peer.
func testMember(i int) elastic.Member { return elastic.Member{ID: testID(i), Index: i, Host: "host"} }
