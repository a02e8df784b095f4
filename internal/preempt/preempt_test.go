package preempt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestParse(t *testing.T) {
	dir := t.TempDir()
	plain, program := filepath.Join(dir, "plain"), filepath.Join(dir, "program")
	for name, mode := range map[string]os.FileMode{plain: 0o644, program: 0o755} {
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]time.Duration{
		"aws": cloudPeriod, "gcp": cloudPeriod, "azure": cloudPeriod,
		filepath.Join(dir, "notice"): filePeriod, filepath.Join(dir, "later", "notice"): filePeriod,
		program: retryPeriod, "/bin/sleep 3": retryPeriod, "notice": retryPeriod, "/a;/b": retryPeriod,
		"": 0, " ": 0, plain: 0, dir: 0,
	} {
		s, err := Parse(text)
		if (err != nil) != (want == 0) || err == nil && s.pause != want {
			t.Errorf("%q: %+v, %v, want a source that looks every %v", text, s, err, want)
		}
	}
}

// After an error Wait polls again after 5 s. It reports each error once, and returns when there is
// a notice.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []any{"", errors.New("a"), errors.New("b"), errors.New("a"), "", "", "the end"}
		var at []time.Duration
		begun := time.Now()
		s := &Source{pause: time.Second, poll: func(context.Context) (string, error) {
			at = append(at, time.Since(begun))
			next := answers[0]
			answers = answers[1:]
			if err, ok := next.(error); ok {
				return "", err
			}
			return next.(string), nil
		}}
		var told []string
		text, err := s.Wait(t.Context(), func(err error) { told = append(told, err.Error()) })
		want := []time.Duration{0, 1e9, 6e9, 11e9, 16e9, 17e9, 18e9}
		if text != "the end" || err != nil || !slices.Equal(told, []string{"a", "b"}) || !slices.Equal(at, want) {
			t.Errorf("%q, %v; reported %q; looked at %v, want %v", text, err, told, at, want)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(time.Minute, func() { cancel(enough) })
		s := &Source{pause: time.Second, poll: func(context.Context) (string, error) { return "", nil }}
		if text, err := s.Wait(ctx, nil); text != "" || !errors.Is(err, enough) {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notice")
	f := file(name)
	if text, err := f.poll(t.Context()); text != "" || err != nil {
		t.Errorf("%q, %v before it is there", text, err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := f.poll(t.Context()); text != name || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func TestCommand(t *testing.T) {
	for text, want := range map[string]string{
		"true":                            "",
		"echo >&3; exit 0":                "", // only echo fails: the command does not inherit descriptor 3
		"exit 3":                          "exit status 3",
		"echo >&3; exit 4":                "exit status 4",
		"echo one >&2; echo two >&2; ! :": "exit status 1: two",
		"no-such-command-here":            "not found",
	} {
		got, err := command(text).run(t.Context())
		if want == "" && (got != text || err != nil) || want != "" && (got != "" || err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// When the context ends, the command and the processes that it has started are killed.
func TestCommandKilled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := command("sleep 1000 & echo $! > " + pids + "; wait").run(ctx)
		ended <- err
	}()
	b, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a killed command is a notice")
	}
	for syscall.Kill(pid, 0) == nil {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
	}
}
