package say

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

	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/internal/wire"
)

// stuck is a writer that blocks until it is closed.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

func TestConsoleStreams(t *testing.T) {
	var out, err, events sink.Buffer
	c := NewConsole(&out, &err, &events, false)
	c.Send(Block{[]byte("[0] a\n"), wire.ToStdout})
	c.Send(Block{[]byte("[1] b\n"), wire.ToStderr})
	c.Send(Block{[]byte("{}\n"), wire.ToEvents})
	c.Say("hear")
	c.progress("step 1")
	_ = c.Close(t.Context(), "done")
	if got := events.String(); out.String() != "[0] a\ndone\n" || !strings.HasPrefix(got, "{}\n") || !strings.HasSuffix(got, `"text":"hear"}`+"\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("stdout %q, events %q", out.String(), events.String())
	}
	if got := err.String(); got != "[1] b\nelrun: hear\nelrun: step 1\n" && got != "elrun: hear\nelrun: step 1\n[1] b\n" {
		t.Errorf("stderr %q", got)
	}
}

// With many senders every block arrives whole, and the blocks of a sender arrive in order.
func TestConsoleWholeBlocks(t *testing.T) {
	var out sink.Buffer
	c := NewConsole(&out, &out, nil, false)
	var senders sync.WaitGroup
	for s := range 8 {
		senders.Go(func() {
			for i := range 200 {
				c.Send(Block{fmt.Appendf(nil, "%d %d\n", s, i), wire.ToStdout})
			}
		})
	}
	senders.Wait()
	_ = c.Close(t.Context(), "")
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
		var out, err sink.Buffer
		c := NewConsole(&out, &err, nil, true)
		show := func(s string) {
			c.progress(s)
			synctest.Wait()
		}
		show("step 1")
		show("step 1")
		show("step 2")
		c.Send(Block{[]byte("x\n"), wire.ToStdout})
		show("step 2")
		_ = c.Close(t.Context(), "")
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
		var events sink.Buffer
		c := NewConsole(free, free, &events, false)
		line := []byte(strings.Repeat("x", 1023) + "\n")
		const lines = 2 * maxQueue / 1024
		begin := time.Now()
		for range lines {
			c.Send(Block{line, wire.ToStdout})
			c.Send(Block{[]byte("{}\n"), wire.ToEvents})
		}
		if took := time.Since(begin); took > 2*stuckPeriod {
			t.Errorf("the senders waited for %v", took)
		}
		for range 2 * maxNotes {
			c.Say("note")
		}
		synctest.Wait()
		if n := strings.Count(events.String(), "{}\n"); n != lines {
			t.Errorf("%d events of %d: the event log waits for the screen", n, lines)
		}
		close(free.free)
		if err := c.Close(t.Context(), "last"); err != nil {
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
	sink.Buffer
	free chan struct{}
}

func (s *stuckOnce) Write(p []byte) (int, error) {
	<-s.free
	return s.Buffer.Write(p)
}

// A slow reader loses no lines.
func TestConsoleSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slow{}
		c := NewConsole(out, out, nil, false)
		const blocks = 2 * maxQueue / (32 << 10)
		text := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 32<<10/100)
		for range blocks {
			c.Send(Block{text, wire.ToStdout})
		}
		_ = c.Close(t.Context(), "")
		if out.String() != strings.Repeat(string(text), blocks) {
			t.Error("lines are missing")
		}
	})
}

// slow is a writer that takes long for each write.
type slow struct{ sink.Buffer }

func (s *slow) Write(p []byte) (int, error) {
	<-time.After(stuckPeriod / 2)
	return s.Buffer.Write(p)
}

// The end of its context ends a call of Close on a stuck console.
func TestConsoleGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(stuck)
		c := NewConsole(free, free, nil, false)
		c.Send(Block{[]byte("x\n"), wire.ToStdout})
		c.Abandon()
		c.Abandon()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Close(ctx, "last"); !errors.Is(err, context.DeadlineExceeded) {
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
	for to, gap := range map[wire.Target]string{wire.ToStdout: "elrun: 2 lines dropped: standard output did not take them\n", wire.ToEvents: `"events":2}` + "\n"} {
		synctest.Test(t, func(t *testing.T) {
			var err sink.Buffer
			full := &disk{room: 5}
			streams := [wire.Targets]io.Writer{io.Discard, &err, io.Discard}
			streams[to] = full
			c := NewConsole(streams[wire.ToStdout], &err, streams[wire.ToEvents], false)
			for _, text := range []string{"abc\n", "def\n", "ghi\n"} {
				c.Send(Block{[]byte(text), to})
			}
			synctest.Wait()
			full.room = 1000
			c.Send(Block{[]byte("jkl\n"), to})
			_ = c.Close(t.Context(), "")
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
	var err sink.Buffer
	c := NewConsole(&disk{}, &err, nil, false)
	if e := c.Close(t.Context(), "done"); !errors.Is(e, syscall.ENOSPC) || !strings.Contains(err.String(), ": done\n") {
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
	sink.Buffer
	room int
}

func (d *disk) Write(p []byte) (int, error) {
	n, _ := d.Buffer.Write(p[:min(d.room, len(p))])
	if d.room -= n; n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// A broken pipe ends the job, and the other streams are still written.
func TestConsoleBroken(t *testing.T) {
	var err, events sink.Buffer
	c := NewConsole(sink.Broken{Err: syscall.EPIPE}, &err, &events, false)
	for range 3 {
		c.Send(Block{[]byte("x\n"), wire.ToStdout})
	}
	if e := <-c.Broken; !errors.Is(e, syscall.EPIPE) {
		t.Errorf("got %v", e)
	}
	c.Send(Block{[]byte("y\n"), wire.ToStderr})
	c.Send(Block{[]byte("{}\n"), wire.ToEvents})
	if e := c.Close(t.Context(), "last"); !errors.Is(e, syscall.EPIPE) {
		t.Errorf("the result: %v", e)
	}
	if got := err.String(); !strings.Contains(got, "elrun: standard output: broken pipe\n") || !strings.Contains(got, "y\n") ||
		!strings.Contains(got, "the result could not be written to standard output: broken pipe: last\n") || !strings.HasSuffix(events.String(), "}\n{}\n") {
		t.Errorf("stderr %q, events %q", got, events.String())
	}
}

// Text of peers and strangers cannot control the terminal.
func TestConsoleEscapes(t *testing.T) {
	var err sink.Buffer
	c := NewConsole(io.Discard, &err, nil, false)
	c.Say("host \x1b[2Jevil\u202e\r\xff\ttab: a\nb ü 日")
	_ = c.Close(t.Context(), "")
	if want := `elrun: host \x1b[2Jevil\u202e\r\xff\ttab: a; b ü 日` + "\n"; err.String() != want {
		t.Errorf("got %q, want %q", err.String(), want)
	}
}

func TestConsoleEventLogFails(t *testing.T) {
	var out, err sink.Buffer
	c := NewConsole(&out, &err, sink.Broken{Err: errors.New("no space")}, false)
	for range 3 {
		c.Send(Block{[]byte("{}\n"), wire.ToEvents})
	}
	c.Send(Block{[]byte("x\n"), wire.ToStdout})
	_ = c.Close(t.Context(), "")
	if n := strings.Count(err.String(), "no space"); n != 1 || out.String() != "x\n" {
		t.Errorf("told %d times, stdout %q", n, out.String())
	}
}
