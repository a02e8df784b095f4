package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
)

// command runs a command line in this process.
func command(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	status = run(args, &terminal{stdout: files[0], stderr: files[1], signals: make(chan os.Signal)})
	var texts [2]string
	for i, f := range files {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(b)
	}
	return texts[0], texts[1], status
}

func TestUsageErrors(t *testing.T) {
	usageErrors(t, map[string]string{
		"":                                "expected",
		"--no-such-flag ls":               "unknown flag",
		"run --no-such-flag ls":           "unknown flag --no-such-flag\nusage: elrun [run]",
		"status --no-such-flag":           "unknown flag --no-such-flag\nusage: elrun status [<job>] [flags]; elrun help status shows all",
		"-n x ls":                         "--np: \"x\": want a number",
		"-n 0 ls":                         "--np: 0 peers: want at least one; without -n",
		"--np=-1 ls":                      "--np: -1 peers: want at least one",
		"-n -1 ls":                        "--np: -1 peers: want at least one",
		"-n --name x ls":                  "--np: \"--name\": want a number",
		"-np x ls":                        "--np: \"x\": want a number",
		"-np":                             "--np: \"\": want a number",
		"--stdin 1 ls":                    "--stdin",
		"--rejoin-timeout 3 ls":           "as in 3s",
		"--connect-timeout soon ls":       "as in 90s",
		"help stats":                      "stats is no command: did you mean elrun help status?",
		"help no-such-command":            "no-such-command is no command; ",
		"stauts":                          "neither a command nor a program named stauts: did you mean elrun status?",
		"stauts job --json":               "did you mean elrun status?",
		"-n":                              "--np: \"\": want a number",
		"join -n 0 ls":                    "peers: want at least one",
		"bench allreduce -n 0":            "peers: want at least one",
		"bench allreduce --np=-1":         "peers: want at least one",
		"-n 99999 ls":                     "99999 peers",
		"--transport pigeon ls":           "--transport",
		"--name a/b ls":                   "job name",
		"run --":                          "no program",
		"stop a b":                        "unexpected",
		"--quorum none ls":                "--quorum",
		"--min-peers 0 ls":                "at least one peer",
		"--audit 1.5 ls":                  "0 to 1",
		"--restart=-1 ls":                 "want none or more",
		"--rejoin-timeout 0s ls":          "want more than 0",
		"--listen here ls":                "address to listen at",
		"--encrypt rot13 ls":              "--encrypt",
		"join":                            "expected",
		"join --ticket x --":              "no program",
		"ticket a b":                      "unexpected",
		"ticket --valid 0s a":             "valid for",
		"scale":                           "expected",
		"scale a b 3":                     "unexpected argument 3",
		"scale a many":                    "want a number",
		"scale a 0":                       "0 peers",
		"scale a -1":                      "unknown flag",
		"scale a":                         "want a number",
		"scale a 3 --elrun x":             "--elrun",
		"--state-rate fast ls":            "want bytes a second",
		"join --state-rate 1 ls":          "at least 1000 bytes",
		"ps a b":                          "unexpected",
		"doctor x":                        "neither HOST:PORT nor a ticket",
		"status a b":                      "unexpected",
		"bench":                           "no collective",
		"bench nonsense":                  "unknown collective",
		"bench allreduce --sizes 1T":      "size",
		"bench allreduce --dtype int7":    "int7",
		"bench allreduce --algorithm zap": "zap",
		"bench allreduce --iters=-1":      "--iters",
	})
}

func TestBadGrace(t *testing.T) {
	usageErrors(t, map[string]string{
		"--grace 0s ls":                 "--grace 0s: want more than 0",
		"--start-timeout 0s ls":         "--start-timeout 0s: want more than 0",
		"--grace=-5s ls":                "--grace -5s: want more than 0",
		"--grace 30 ls":                 "as in 30s",
		"--grace ls":                    "want a duration with its unit",
		"join --grace 0s --ticket x ls": "--grace 0s: want more than 0",
		"k8s --name a --image b --peers 2 --grace 0s ls": "--grace 0s: want more than 0",
	})
}

// usageErrors checks that each command line is refused with the given text.
func usageErrors(t *testing.T, lines map[string]string) {
	t.Helper()
	for line, want := range lines {
		if _, stderr, status := command(t, strings.Fields(line)...); status != statusUsage || !strings.Contains(stderr, want) {
			t.Errorf("elrun %s: status %d, stderr %q, want %q in it", line, status, stderr, want)
		}
	}
}

func TestHelp(t *testing.T) {
	stdout, _, status := command(t, "--help")
	for _, want := range []string{"run", "join", "ticket", "scale", "ps", "status", "stop", "bench", "doctor"} {
		if status != 0 || !strings.Contains(stdout, "  "+want+" ") {
			t.Errorf("status %d, no %s in:\n%s", status, want, stdout)
		}
	}
	if strings.Contains(stdout, "bench-peer") {
		t.Error("the help shows a hidden command")
	}
}

func TestHelpOfCommands(t *testing.T) {
	all, _, _ := command(t, "--help")
	run, _, _ := command(t, "run", "--help")
	for line, want := range map[string]string{"help": all, "help run": run, "--version": thisVersion() + "\n", "run --version": thisVersion() + "\n"} {
		if stdout, stderr, status := command(t, strings.Fields(line)...); status != 0 || stdout != want || stderr != "" {
			t.Errorf("elrun %s: status %d, stdout %q, stderr %q", line, status, stdout, stderr)
		}
	}
}

// mpirun's -np is -n.
func TestMPIFlags(t *testing.T) {
	for _, line := range []string{"-np 2 echo x", "-np=2 echo x", "-np2 echo x", "run -np 2 -- echo x"} {
		if stdout, stderr, status := command(t, strings.Fields(line)...); status != 0 || strings.Count(stdout, "] x\n") != 2 {
			t.Errorf("elrun %s: status %d, stdout %q, stderr %q", line, status, stdout, stderr)
		}
	}
}

func TestRun(t *testing.T) {
	events := filepath.Join(t.TempDir(), "events")
	for _, line := range []string{"-n 2 --events " + events + " echo -n --np x", "run -n 2 -- echo -n --np x", "-n 2 -- echo -n --np x"} {
		stdout, stderr, status := command(t, strings.Fields(line)...)
		if status != 0 || strings.Count(stdout, "] --np x\n") != 2 || stderr != "" {
			t.Errorf("elrun %s: status %d, stdout %q, stderr %q", line, status, stdout, stderr)
		}
	}
	if b, err := os.ReadFile(events); err != nil || bytes.Count(b, []byte("\n")) != 3 || !bytes.Contains(b, []byte(`"event":"job"`)) || bytes.Count(b, []byte(`"event":"exit"`)) != 2 {
		t.Errorf("events of a program that is no peer: %q, %v, want a job and the ends of two processes", b, err)
	}
	if _, stderr, status := command(t, "-n", "1", "false"); status != statusFailed || !strings.Contains(stderr, "exited with status 1") {
		t.Errorf("false: status %d, stderr %q", status, stderr)
	}
	if _, stderr, status := command(t, "--events", "/no/such/dir/x", "true"); status != statusFailed || !strings.Contains(stderr, "event log") {
		t.Errorf("bad event log: status %d, stderr %q", status, stderr)
	}
}

// Arguments and names of files are bytes, and need not be UTF-8.
func TestBytesOfArguments(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "caf\xe9")
	events := filepath.Join(t.TempDir(), "ev\xff")
	stdout, stderr, status := command(t, "-n", "1", "--log-dir", dir, "--events="+events, "printf", "%s\n", "\xe9t\xe9", "\xff\xfe")
	if status != 0 || stdout != "[0] \xe9t\xe9\n[0] \xff\xfe\n" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	for _, name := range []string{filepath.Join(dir, "0.log"), events} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	// A manifest holds UTF-8 only.
	_, stderr, status = command(t, "k8s", "--name", "j", "--image", "i", "--peers", "1", "--", "train", "\xe9")
	if status != statusUsage || !strings.Contains(stderr, `argument "\xe9"`) {
		t.Errorf("k8s: status %d, stderr %q", status, stderr)
	}
}

func TestStatusOfNoJob(t *testing.T) {
	if _, stderr, status := command(t, "status", "no-such-job"); status != statusFailed || !strings.Contains(stderr, "no such job") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if _, stderr, status := command(t, "stop", "no-such-job"); status != statusFailed || !strings.Contains(stderr, "no such job") {
		t.Errorf("stop: status %d, stderr %q", status, stderr)
	}
	stdout, _, status := command(t, "ps", "--json")
	var jobs []any
	if err := json.Unmarshal([]byte(stdout), &jobs); err != nil || status != 0 {
		t.Errorf("ps --json: status %d, %q", status, stdout)
	}
	if _, stderr, status := command(t, "ps", "no-such-job"); status != statusFailed || !strings.Contains(stderr, "no such job: no-such-job") {
		t.Errorf("ps of no job: status %d, stderr %q", status, stderr)
	}
	if stdout, _, status = command(t, "ps"); status != 0 || !strings.HasPrefix(stdout, "JOB ") {
		t.Errorf("ps: status %d, %q", status, stdout)
	}
}

func TestDoctor(t *testing.T) {
	stdout, stderr, status := command(t, "doctor")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "ok    control sockets: ") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestInterruptible(t *testing.T) {
	signals := make(chan os.Signal, 1)
	ctx, release := (&terminal{signals: signals}).interruptible(t.Context())
	defer release()
	signals <- syscall.SIGINT
	<-ctx.Done()
	var shown strings.Builder
	if status := report(&shown, fmt.Errorf("wait: %w", context.Cause(ctx))); status != 130 || shown.Len() > 0 {
		t.Errorf("status %d, %q is shown", status, shown.String())
	}
}

func TestInterruptibleReleased(t *testing.T) {
	signals := make(chan os.Signal, 1)
	ctx, release := (&terminal{signals: signals}).interruptible(t.Context())
	release()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cause %v", err)
	}
	signals <- syscall.SIGINT // release must not take this signal from the channel
	if len(signals) != 1 {
		t.Error("a released context took a signal")
	}
}

// alone runs a peer of bench as a group of one, and returns its output lines.
func alone(t *testing.T, f benchFlags) []string {
	t.Helper()
	stdout, stderr, status := command(t, append(f.args(), "--group=1")...)
	if status != 0 {
		t.Fatalf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	return slices.Collect(strings.Lines(stdout))
}

// bench passes its flags to its peers unchanged.
func TestBenchArguments(t *testing.T) {
	lines := alone(t, benchFlags{Collective: "scan", Sizes: "4,1K", DType: "int8", Op: "max", Algorithm: "auto", Iters: 3,
		InPlace: true, Alloc: true, JSON: true, Transport: "p2p", Encrypt: "always"})
	if len(lines) != 2 {
		t.Fatalf("got %q", lines)
	}
	for _, line := range lines {
		var r bench.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Collective != "scan" || r.Type != "int8" || r.Op != "max" || r.Iters != 3 || r.N != 1 || r.Wrong != 0 || r.Transport != "p2p" {
			t.Errorf("got %+v", r)
		}
	}
}

func TestBenchTune(t *testing.T) {
	f := benchFlags{Collective: "allreduce", Sizes: "4,1K", DType: "float32", Op: "sum", Algorithm: "auto", Iters: 1,
		Transport: "auto", Encrypt: "auto", Tune: true}
	if lines := alone(t, f); len(lines) != 3+2*4 || !strings.HasPrefix(lines[1], "a message takes") || strings.Count(strings.Join(lines[3:], ""), "*\n") != 2 {
		t.Errorf("got %q", lines)
	}
	f.JSON = true
	lines := alone(t, f)
	if len(lines) != 2*4 {
		t.Fatalf("got %q", lines)
	}
	var last bench.Result
	if err := json.Unmarshal([]byte(lines[7]), &last); err != nil || last.Bytes != 1024 || last.P50 <= 0 || last.Wrong != 0 {
		t.Errorf("%+v, %v, of %s", last, err, lines[7])
	}
}
