package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// buffer is a bytes.Buffer that is safe to read while a console writes to it.
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

// stuck is a writer that blocks until it is closed.
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
	_ = c.close(t.Context(), "done")
	if out.String() != "[0] a\ndone\n" || events.String() != "{}\n" {
		t.Errorf("stdout %q, events %q", out.String(), events.String())
	}
	if got := err.String(); got != "[1] b\nelrun: hear\nelrun: step 1\n" && got != "elrun: hear\nelrun: step 1\n[1] b\n" {
		t.Errorf("stderr %q", got)
	}
}

// With many senders every block arrives whole, and the blocks of a sender arrive in order.
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
	_ = c.close(t.Context(), "")
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
		_ = c.close(t.Context(), "")
		const erase = "\r\x1b[K"
		want := erase + "step 1" + erase + "step 2" + erase + erase + "step 2" + erase
		if err.String() != want {
			t.Errorf("got %q, want %q", err.String(), want)
		}
	})
}

// While nobody reads the output, say does not block, and send blocks only until the printer counts
// as stuck. Later a line reports the number of dropped lines.
func TestConsoleStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := &stuckOnce{free: make(chan struct{})}
		var events buffer
		c := newConsole(free, free, &events, false)
		line := []byte(strings.Repeat("x", 1023) + "\n")
		const lines = 2 * maxQueue / 1024
		begin := time.Now()
		for range lines {
			c.send(block{line, toStdout})
			c.send(block{[]byte("{}\n"), toEvents})
		}
		if took := time.Since(begin); took > 2*stuckPeriod {
			t.Errorf("the senders waited for %v", took)
		}
		for range 2 * maxNotes {
			c.say("note")
		}
		synctest.Wait()
		if n := strings.Count(events.String(), "{}\n"); n != lines {
			t.Errorf("%d events of %d: the event log waits for the screen", n, lines)
		}
		close(free.free)
		if err := c.close(t.Context(), "last"); err != nil {
			t.Error(err)
		}
		out := free.String()
		shown, missing := strings.Count(out, string(line)), 0
		for _, m := range regexp.MustCompile(`elrun: ([0-9,]+) lines dropped: standard output`).FindAllStringSubmatch(out, -1) {
			n, _ := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
			missing += n
		}
		if missing == 0 || shown+missing != lines {
			t.Errorf("%d of %d lines were shown, %d are said to be dropped", shown, lines, missing)
		}
		if !strings.Contains(out, "lines dropped: standard error") || !strings.HasSuffix(out, "\nlast\n") {
			t.Errorf("the end is %q", out[len(out)-200:])
		}
	})
}

// stuckOnce blocks until it is freed.
type stuckOnce struct {
	buffer
	free chan struct{}
}

func (s *stuckOnce) Write(p []byte) (int, error) {
	<-s.free
	return s.buffer.Write(p)
}

// A slow reader loses no lines.
func TestConsoleSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slow{}
		c := newConsole(out, out, nil, false)
		const blocks = 2 * maxQueue / (32 << 10)
		text := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 32<<10/100)
		for range blocks {
			c.send(block{text, toStdout})
		}
		_ = c.close(t.Context(), "")
		if out.String() != strings.Repeat(string(text), blocks) {
			t.Error("lines are missing")
		}
	})
}

// slow is a writer that takes long for each write.
type slow struct{ buffer }

func (s *slow) Write(p []byte) (int, error) {
	<-time.After(stuckPeriod / 2)
	return s.buffer.Write(p)
}

// The end of its context ends a call of close on a stuck console.
func TestConsoleGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(stuck)
		c := newConsole(free, free, nil, false)
		c.send(block{[]byte("x\n"), toStdout})
		c.abandon()
		c.abandon()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.close(ctx, "last"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		<-c.abandoned
		close(free)
		synctest.Wait()
	})
}

// A temporary error is reported once. Later lines are written whole, after a line with the number
// of dropped lines.
func TestConsoleDiskFull(t *testing.T) {
	for to, gap := range map[target]string{toStdout: "elrun: 2 lines dropped: standard output did not take them\n", toEvents: `"events":2}` + "\n"} {
		synctest.Test(t, func(t *testing.T) {
			var err buffer
			full := &disk{room: 5}
			streams := [targets]io.Writer{io.Discard, &err, io.Discard}
			streams[to] = full
			c := newConsole(streams[toStdout], &err, streams[toEvents], false)
			for _, text := range []string{"abc\n", "def\n", "ghi\n"} {
				c.send(block{[]byte(text), to})
			}
			synctest.Wait()
			full.room = 1000
			c.send(block{[]byte("jkl\n"), to})
			_ = c.close(t.Context(), "")
			got := full.String()
			if !strings.HasPrefix(got, "abc\nd\n") || !strings.HasSuffix(got, gap+"jkl\n") || strings.Count(got, "\n") != 4 {
				t.Errorf("%v: %q", to, got)
			}
			if n := strings.Count(err.String(), "no space left on device; lines that cannot be written are dropped"); n != 1 {
				t.Errorf("%v: told %d times: %q", to, n, err.String())
			}
		})
	}
}

// A result that could not be written is an error and is reported.
func TestConsoleResultUnwritten(t *testing.T) {
	var err buffer
	c := newConsole(&disk{}, &err, nil, false)
	if e := c.close(t.Context(), "done"); !errors.Is(e, syscall.ENOSPC) || !strings.Contains(err.String(), ": done\n") {
		t.Errorf("got %v, stderr %q", e, err.String())
	}
}

// If a line could not be written completely to a regular file, no part of the line remains in the
// file.
func TestLineWriterTakesBack(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("whole\nhal"); err != nil || !truncateTail(f, 3) {
		t.Fatalf("not taken back: %v", err)
	}
	if _, err := f.WriteString("next\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "whole\nnext\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// disk is a writer with room for a limited number of bytes.
type disk struct {
	buffer
	room int
}

func (d *disk) Write(p []byte) (int, error) {
	n, _ := d.buffer.Write(p[:min(d.room, len(p))])
	if d.room -= n; n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// A broken pipe ends the job, and the other streams are still written.
func TestConsoleBroken(t *testing.T) {
	var err, events buffer
	c := newConsole(gone{}, &err, &events, false)
	for range 3 {
		c.send(block{[]byte("x\n"), toStdout})
	}
	if e := <-c.broken; !errors.Is(e, syscall.EPIPE) {
		t.Errorf("got %v", e)
	}
	c.send(block{[]byte("y\n"), toStderr})
	c.send(block{[]byte("{}\n"), toEvents})
	if e := c.close(t.Context(), "last"); !errors.Is(e, syscall.EPIPE) {
		t.Errorf("the result: %v", e)
	}
	if got := err.String(); !strings.Contains(got, "elrun: standard output: broken pipe\n") || !strings.Contains(got, "y\n") ||
		!strings.Contains(got, "the result could not be written to standard output: broken pipe: last\n") || events.String() != "{}\n" {
		t.Errorf("stderr %q, events %q", got, events.String())
	}
}

// gone is a pipe without a reader.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// Text of peers and strangers cannot control the terminal.
func TestConsoleEscapes(t *testing.T) {
	var err buffer
	c := newConsole(io.Discard, &err, nil, false)
	c.say("host \x1b[2Jevil\u202e\r\xff\ttab: a\nb ü 日")
	_ = c.close(t.Context(), "")
	if want := `elrun: host \x1b[2Jevil\u202e\r\xff\ttab: a; b ü 日` + "\n"; err.String() != want {
		t.Errorf("got %q, want %q", err.String(), want)
	}
}

func TestConsoleEventLogFails(t *testing.T) {
	var out, err buffer
	c := newConsole(&out, &err, failing{}, false)
	for range 3 {
		c.send(block{[]byte("{}\n"), toEvents})
	}
	c.send(block{[]byte("x\n"), toStdout})
	_ = c.close(t.Context(), "")
	if n := strings.Count(err.String(), "no space"); n != 1 || out.String() != "x\n" {
		t.Errorf("told %d times, stdout %q", n, out.String())
	}
}
