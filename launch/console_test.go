package launch

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// buffer is a bytes.Buffer that may be read while a console writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// stuck is a writer that takes nothing until it is closed.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

// failing is a writer that always fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestConsoleStreams(t *testing.T) {
	var out, err, events buffer
	c := newConsole(&out, &err, &events, false)
	c.send(block{[]byte("[0] a\n"), toStdout})
	c.send(block{[]byte("[1] b\n"), toStderr})
	c.send(block{[]byte("{}\n"), toEvents})
	c.say("hear")
	c.progress("step 1")
	c.close("done", time.Minute)
	if out.String() != "[0] a\ndone\n" || events.String() != "{}\n" {
		t.Errorf("stdout %q, events %q", out.String(), events.String())
	}
	if got := err.String(); got != "[1] b\nelrun: hear\nelrun: step 1\n" && got != "elrun: hear\nelrun: step 1\n[1] b\n" {
		t.Errorf("stderr %q", got)
	}
}

// Many senders: every block arrives, whole and in its sender's order.
func TestConsoleWholeBlocks(t *testing.T) {
	var out buffer
	c := newConsole(&out, &out, nil, false)
	var senders sync.WaitGroup
	for s := range 8 {
		senders.Go(func() {
			for i := range 200 {
				c.send(block{fmt.Appendf(nil, "%d %d\n", s, i), toStdout})
			}
		})
	}
	senders.Wait()
	c.close("", time.Minute)
	next := make([]int, 8)
	for line := range strings.Lines(out.String()) {
		var s, i int
		if _, err := fmt.Sscanf(line, "%d %d\n", &s, &i); err != nil || i != next[s] {
			t.Fatalf("line %q, want number %d: %v", line, next[s], err)
		}
		next[s]++
	}
	for s, n := range next {
		if n != 200 {
			t.Errorf("sender %d: %d blocks", s, n)
		}
	}
}

func TestConsoleProgressLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, err buffer
		c := newConsole(&out, &err, nil, true)
		show := func(s string) {
			c.progress(s)
			synctest.Wait()
		}
		show("step 1")
		show("step 1")
		show("step 2")
		c.send(block{[]byte("x\n"), toStdout})
		show("step 2")
		c.close("", time.Minute)
		const erase = "\r\x1b[K"
		want := erase + "step 1" + erase + "step 2" + erase + erase + "step 2" + erase
		if err.String() != want {
			t.Errorf("got %q, want %q", err.String(), want)
		}
	})
}

// While nobody reads the console: the launcher's own lines do not wait, peers wait
// until they are let go, and close gives up.
func TestConsoleStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(stuck)
		c := newConsole(free, free, nil, false)
		var sender sync.WaitGroup
		sent := 0
		sender.Go(func() {
			for range 3 {
				c.send(block{[]byte("x\n"), toStdout})
				sent++
			}
		})
		synctest.Wait()
		if sent != 1 {
			t.Errorf("%d blocks taken by a stuck console, want 1", sent)
		}
		for range 2 * maxNotes {
			c.say("note")
		}
		c.giveUp()
		c.giveUp()
		sender.Wait()
		c.close("last", time.Second)
		close(free)
		synctest.Wait()
	})
}

func TestConsoleBroken(t *testing.T) {
	var err buffer
	c := newConsole(failing{}, &err, nil, false)
	for range 3 {
		c.send(block{[]byte("x\n"), toStdout})
	}
	if e := <-c.broken; e == nil || e.Error() != "no space" {
		t.Errorf("got %v", e)
	}
	c.close("last", time.Minute)
}

func TestConsoleEventLogFails(t *testing.T) {
	var out, err buffer
	c := newConsole(&out, &err, failing{}, false)
	for range 3 {
		c.send(block{[]byte("{}\n"), toEvents})
	}
	c.send(block{[]byte("x\n"), toStdout})
	c.close("", time.Minute)
	if n := strings.Count(err.String(), "no space"); n != 1 || out.String() != "x\n" {
		t.Errorf("told %d times, stdout %q", n, out.String())
	}
}
