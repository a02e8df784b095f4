package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A ticket as the first argument becomes a flag. Words that only resemble a ticket do not become a
// flag.
func TestNameTicket(t *testing.T) {
	for line, want := range map[string]string{
		"join elrun1.abc -n 2 -- prog x": "join --ticket=elrun1.abc -n 2 -- prog x",
		"join elrun12.x":                 "join --ticket=elrun12.x",
		"join garbage -- prog":           "join --ticket=garbage -- prog",
		"join -n 2 prog":                 "join -n 2 prog",
		"join -- prog":                   "join -- prog",
		"join ./elrun1.abc prog":         "join ./elrun1.abc prog",
		"join elrun.sh":                  "join elrun.sh",
		"join prog a -- b":               "join prog a -- b",
		"join":                           "join",
		"run elrun1.abc -- prog":         "run elrun1.abc -- prog",
		"join - -n 2 prog x":             "join --ticket=- -n 2 prog x",
		"join @file prog":                "join --ticket=@file prog",
		"join @file -- prog":             "join --ticket=@file -- prog",
		"join -- @prog":                  "join -- @prog",
		"join -n - -- prog":              "join -n - -- prog",
		"join prog @file":                "join prog @file",
	} {
		if got := strings.Join(nameTicket(strings.Fields(line)), " "); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

func TestJoinErrors(t *testing.T) {
	for line, want := range map[string]string{
		"join garbage -- true":                   "bad ticket",
		"join elrun1.garbage true":               "bad ticket",
		"join --name no-such-job true":           "no such job",
		"join --ticket elrun1.x no-such-program": "cannot run",
		"ticket no-such-job":                     "no such job",
		"scale no-such-job 2":                    "no such job",
		"scale no-such-job --elrun=3 2":          "no such job",
		"join @/no/such/file true":               "read the ticket from /no/such/file: no such file",
		"join --ticket @/ true":                  "read the ticket from /: ",
	} {
		if _, stderr, status := command(t, strings.Fields(line)...); status != statusFailed || !strings.Contains(stderr, want) {
			t.Errorf("elrun %s: status %d, stderr %q, want %q in it", line, status, stderr, want)
		}
	}
}

// written returns the path of a new file with the given text.
func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ticket")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReadTicket(t *testing.T) {
	for _, c := range []struct {
		arg, text string // text on standard input or in the file
		want      string // the ticket, or a part of the error
	}{
		{"elrun1.abc", "", "elrun1.abc"},
		{"", "", ""},
		{"-", "elrun1.abc\n", "elrun1.abc"},
		{"@", " elrun1.ab\ncd \r\n", "elrun1.ab\ncd"}, // the ticket parser handles line breaks
		{"-", "", "from standard input: it is empty"},
		{"@", "\n \n", ": it is empty"},
		{"-", strings.Repeat("x", maxTicket), strings.Repeat("x", maxTicket)},
		{"-", strings.Repeat("x", maxTicket+1), "name the file of a ticket"},
		{"@", strings.Repeat("x", 3*maxTicket), "name the file of a ticket"},
	} {
		name := written(t, c.text)
		if c.arg == "@" {
			c.arg += name
		}
		stdin, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readTicket(t.Context(), c.arg, stdin)
		if err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %.20q: %.20q, %v, want %.30q", c.arg, c.text, got, err, c.want)
		}
		_ = stdin.Close()
	}
}

// Input that arrives in pieces through a pipe is read to its end. An interrupt ends the wait for
// input.
func TestReadTicketFromPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	if _, err := readTicket(ctx, "-", r); !errors.Is(err, interrupted) {
		t.Errorf("interrupted: %v", err)
	}
	written := make(chan error, 1)
	go func() {
		var errs []error
		for _, part := range []string{"elrun1.", "abc", "\n"} {
			_, err := w.WriteString(part)
			errs = append(errs, err)
		}
		written <- errors.Join(append(errs, w.Close())...)
	}()
	if got, err := readTicket(t.Context(), "-", r); got != "elrun1.abc" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// join reads the ticket from standard input.
func TestJoinByInput(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdin, err := os.Open(written(t, "elrun1.garbage\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if status := run([]string{"join", "-", "true"}, &terminal{stdout: out, stderr: out, stdin: stdin}); status != statusFailed {
		t.Errorf("status %d", status)
	}
	if b, err := os.ReadFile(out.Name()); err != nil || !strings.Contains(string(b), "bad ticket") {
		t.Errorf("%q, %v", b, err)
	}
}

// FuzzNameTicket checks that all words keep their order, and only the ticket gets its flag.
func FuzzNameTicket(f *testing.F) {
	for _, line := range []string{"join elrun1.x prog", "join - prog", "join @f -- prog", "join x -- y", "join", "run x", "join -- -", ""} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		got := nameTicket(slices.Clone(args))
		if slices.Equal(got, args) {
			return
		}
		if len(args) < 2 || !slices.Equal(got, slices.Concat([]string{"join", "--ticket=" + args[1]}, args[2:])) {
			t.Errorf("%q became %q", args, got)
		}
		if again := nameTicket(slices.Clone(got)); !slices.Equal(again, got) {
			t.Errorf("%q became %q the second time", got, again)
		}
	})
}

// FuzzParse checks that no command line makes the parser panic. In an accepted command line of
// scale a single argument is a number of peers, not a job.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"scale j 3 --elrun 7", "scale --elrun=7 3", "scale j --elrun 7 3", "-n 2 prog -x", "join - prog",
		"--state-rate 10MB/s prog", "status j --json", "stop", "ps j", "bench allreduce --sizes 4", "--", "run -- --", "ticket --valid 1h j"} {
		f.Add(line)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = null.Close() })
	f.Fuzz(func(t *testing.T, line string) {
		var c commands
		parser, err := newParser(&c, &terminal{stdout: null, stderr: null}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Fields(line)
		k, err := parser.Parse(nameTicket(args))
		if err != nil || len(args) == 0 || args[0] != "scale" || !strings.HasPrefix(k.Command(), "scale") {
			return
		}
		if job, h, err := c.Scale.parse(); err == nil && c.Scale.N == "" && job != "" {
			t.Errorf("%q: job %q, peers %+v", args, job, h)
		}
	})
}

// Flags of scale may stand anywhere.
func TestScaleArguments(t *testing.T) {
	for line, want := range map[string]scaleCommand{
		"scale j 3":               {Job: "j", N: "3"},
		"scale j 3 --elrun 7":     {Job: "j", N: "3", Elrun: 7},
		"scale j --elrun 7 3":     {Job: "j", N: "3", Elrun: 7},
		"scale j --elrun=7 3":     {Job: "j", N: "3", Elrun: 7},
		"scale --elrun 7 j 3":     {Job: "j", N: "3", Elrun: 7},
		"scale 3":                 {Job: "3"},
		"scale 3 --elrun=7":       {Job: "3", Elrun: 7},
		"scale --elrun=7 3":       {Job: "3", Elrun: 7},
		"scale 12 3":              {Job: "12", N: "3"},
		"scale --elrun=7 -- j 33": {Job: "j", N: "33", Elrun: 7},
		"scale j a@b:3":           {Job: "j", N: "a@b:3"},
		"scale a@b:33":            {Job: "a@b:33"},
	} {
		var c commands
		parser, err := newParser(&c, &terminal{}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(nameTicket(strings.Fields(line))); err != nil || c.Scale != want {
			t.Errorf("%s: %+v, %v, want %+v", line, c.Scale, err, want)
		}
		job, h, err := c.Scale.parse()
		host := map[bool]string{true: "a@b"}[strings.Contains(line, "@")]
		if wantJob := map[bool]string{true: "", false: want.Job}[want.N == ""]; err != nil || job != wantJob || h.Slots%30 != 3 || h.Name != host {
			t.Errorf("%s: job %q, peers %+v, %v", line, job, h, err)
		}
	}
}
