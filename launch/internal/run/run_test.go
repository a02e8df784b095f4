package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// runShell runs a shell script as every peer and returns what it printed.
func runShell(t *testing.T, script string, o spec.Options) (res spec.Result, stdout, stderr string) {
	t.Helper()
	var out, err sink.Buffer
	if o.Output.Stdout == nil {
		o.Output.Stdout = &out
	}
	o.Output.Stderr = &err
	o.Program, o.Args = "sh", []string{"-c", script}
	res, e := Run(t.Context(), o)
	if e != nil {
		t.Fatal(e)
	}
	return res, out.String(), err.String()
}

// sorted returns the sorted lines of s, for output of several peers.
func sorted(s string) []string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	slices.Sort(lines)
	return lines
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if runtime.GOOS != "linux" {
		return syscall.Kill(pid, 0) == nil
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, []byte(") X "))
}

func TestRunOutput(t *testing.T) {
	dir := t.TempDir()
	res, out, err := runShell(t, `echo "out $ELRUN_INDEX of $ELRUN_NP"; echo "err" >&2; printf last`, spec.Options{Peers: 2, Output: spec.Output{LogDir: dir}})
	if want := []string{"[0] last", "[0] out 0 of 2", "[1] last", "[1] out 1 of 2"}; !slices.Equal(sorted(out), want) {
		t.Errorf("stdout %q", out)
	}
	if want := []string{"[0] err", "[1] err"}; !slices.Equal(sorted(err), want) {
		t.Errorf("stderr %q", err)
	}
	if res.Status != 0 || len(res.Exits) != 2 || res.Done != nil || !strings.HasPrefix(res.Job, "sh-") {
		t.Errorf("result %+v", res)
	}
	for i := range 2 {
		log, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.log", i)))
		if want := []string{"err", "last", fmt.Sprintf("out %d of 2", i)}; err != nil || !slices.Equal(sorted(string(log)), want) {
			t.Errorf("log %d is %q, %v", i, log, err)
		}
		if info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("%d.log", i))); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("log %d has the mode %v, %v; want that of a private file", i, info.Mode(), err)
		}
	}
}

func TestRunPlain(t *testing.T) {
	_, out, _ := runShell(t, `echo x`, spec.Options{Peers: 1, Output: spec.Output{Plain: true}})
	if out != "x\n" {
		t.Errorf("stdout %q", out)
	}
}

func TestRunStatus(t *testing.T) {
	res, _, err := runShell(t, `[ $ELRUN_INDEX = 1 ] && exit 3; exit 0`, spec.Options{Peers: 3})
	if res.Status != 1 || !strings.Contains(err, "peer 1 (pid ") || !strings.Contains(err, "exited with status 3") {
		t.Errorf("status %d, stderr %q", res.Status, err)
	}
	res, _, err = runShell(t, `kill -9 $$`, spec.Options{Peers: 1})
	if res.Status != 1 || res.Exits[0].Signal != syscall.SIGKILL || !strings.Contains(err, "was killed by signal 9 (killed)") {
		t.Errorf("result %+v, stderr %q", res, err)
	}
}

// A shell script can use the protocol directly.
const sayHello = `printf '{"hello":{"id":"peer-%s"}}\n' $ELRUN_INDEX >&3; read -r answer <&3; `

// sayComplete says that a loop has come to its end.
const sayComplete = `printf '{"event":{"event":"complete","peer":"peer-%s"}}\n' $ELRUN_INDEX >&3; `

func TestRunPeersMeet(t *testing.T) {
	res, out, err := runShell(t, sayHello+`echo "$answer"; `+sayComplete, spec.Options{Peers: 2})
	if res.Status != 0 || err != "" || strings.Count(out, `"id":"peer-0"`) != 2 || strings.Count(out, `"index":1`) != 2 ||
		strings.Count(out, `"sole":true`) != 2 {
		t.Errorf("result %+v, stdout %q, stderr %q", res, out, err)
	}
}

// The options of the group reach every peer.
func TestRunTellsOptions(t *testing.T) {
	_, out, err := runShell(t, sayHello+`echo "$answer"`, spec.Options{Peers: 2, Membership: spec.Membership{StateRate: 5e6, MinPeers: 2, Quorum: "any"}})
	for _, want := range []string{`"state_rate":5000000`, `"min_peers":2`, `"any":true`} {
		if strings.Count(out, want) != 2 {
			t.Errorf("%s is not told to both: stdout %q, stderr %q", want, out, err)
		}
	}
	if _, out, _ = runShell(t, sayHello+`echo "$answer"`, spec.Options{Peers: 1}); strings.Contains(out, "state_rate") {
		t.Errorf("no limit is told as one: %q", out)
	}
}

func TestRunEndsBeforeJoining(t *testing.T) {
	for _, status := range []int{0, 3} {
		script := fmt.Sprintf(`[ $ELRUN_INDEX = 1 ] && exit %d; `, status) + sayHello + `echo "$answer"; exit 1`
		res, out, err := runShell(t, script, spec.Options{Peers: 3})
		if res.Status != 1 || strings.Count(out, "abort") != 2 || strings.Contains(out, "peers") {
			t.Errorf("status %d: result %+v, stdout %q", status, res, out)
		}
		if want := fmt.Sprintf("exited with status %d", status); !strings.Contains(err, want) || !strings.Contains(err, "are told to end") {
			t.Errorf("status %d: stderr %q", status, err)
		}
	}
}

const sayDone = `printf '{"event":{"time":"2026-01-02T03:04:05Z","event":"done","peer":"peer-%s","index":0,"steps":9,"peers":2,"sha256":"%s"}}\n' $ELRUN_INDEX `

// Of several launchers the one that leads the job when it ends prints the result, and no other: members
// that close their groups leave a view to others.
func TestRunDoneOfOthers(t *testing.T) {
	known := func(epoch int, members string) string {
		return fmt.Sprintf(`printf '{"known":{"epoch":%d,"members":[%s]}}\n' >&3; `, epoch, members)
	}
	foreign := `{"id":"far","launcher":"another"}`
	sayDoneIn2 := strings.Replace(sayDone, `"event":"done"`, `"event":"done","epoch":2`, 1)
	for _, c := range []struct {
		name, script string
		prints       bool
	}{
		{"another launcher leads", known(2, foreign) + sayDone + `abcd >&3; `, false},
		{"another launcher led", known(2, foreign) + sayDone + `abcd >&3; ` + known(3, ""), false},
		{"another launcher had led before", known(2, foreign) + known(3, "") + sayDone + `abcd >&3; `, true},
		{"another launcher led at the last step", known(2, foreign) + known(3, "") + sayDoneIn2 + `abcd >&3; `, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, out, err := runShell(t, sayHello+c.script, spec.Options{Peers: 1, Output: spec.Output{Shared: true}}); strings.Contains(out, "sha256=abcd") != c.prints {
				t.Errorf("stdout %q, stderr %q", out, err)
			}
		})
	}
}

func TestRunDone(t *testing.T) {
	var events sink.Buffer
	res, out, _ := runShell(t, sayHello+sayDone+`abcd >&3; echo after`, spec.Options{Peers: 2, Output: spec.Output{Events: &events}})
	if res.Status != 0 || !strings.HasSuffix(out, "after\ndone steps=9 peers=2 sha256=abcd\n") || strings.Count(out, "done") != 1 {
		t.Errorf("result %+v, stdout %q", res, out)
	}
	if n := strings.Count(events.String(), `"sha256":"abcd"}`+"\n"); n != 2 {
		t.Errorf("%d events logged: %q", n, events.String())
	}
}

func TestRunDoneDiffers(t *testing.T) {
	res, out, err := runShell(t, sayHello+sayDone+`sha$ELRUN_INDEX >&3`, spec.Options{Peers: 2})
	if res.Status != 1 || out != "" || !strings.Contains(err, "sha0") || !strings.Contains(err, "sha1") {
		t.Errorf("result %+v, stdout %q, stderr %q", res, out, err)
	}
}

func TestRunGarbageMessage(t *testing.T) {
	res, _, err := runShell(t, `echo garbage >&3; read -r x <&3; exit 4`, spec.Options{Peers: 1})
	if res.Status != 1 || !strings.Contains(err, "decode message") || !strings.Contains(err, "exited with status 4") {
		t.Errorf("result %+v, stderr %q", res, err)
	}
}

// A peer that prints without pause loses no line and does not delay the output of a quiet peer.
func TestRunFlood(t *testing.T) {
	const lines = 200_000
	res, out, _ := runShell(t, fmt.Sprintf(`[ $ELRUN_INDEX = 1 ] && { echo quiet; exit; }
		yes 0123456789 | head -n %d; head -c 300000 /dev/zero | tr '\0' x`, lines), spec.Options{Peers: 2})
	if n := strings.Count(out, "[0] 0123456789\n"); res.Status != 0 || n != lines || strings.Count(out, "[1] quiet\n") != 1 {
		t.Errorf("result %+v, %d lines of %d", res, n, lines)
	}
	if n := strings.Count(out, "x"); n != 300000 {
		t.Errorf("%d bytes of the endless line, want 300000", n)
	}
	for line := range strings.Lines(out) {
		if len(line) > wire.MaxLine+len("[0] \n") || !strings.HasPrefix(line, "[") {
			t.Fatalf("line of %d bytes: %.40q", len(line), line)
		}
	}
}

// Processes that a program started in the background end with the program.
func TestRunLeavesNoGrandchildren(t *testing.T) {
	_, out, _ := runShell(t, `sleep 300 & echo $!`, spec.Options{Peers: 1, Output: spec.Output{Plain: true}})
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(4 * time.Minute); alive(pid); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// interrupted runs a script as 2 peers and sends signals. It sends the first signal when both peers
// have printed "ready", and each further signal when the launcher has reported the previous one.
func interrupted(t *testing.T, script string, o spec.Options, signals ...os.Signal) (spec.Result, string) {
	t.Helper()
	out := sink.Expect("[1] ready")
	told := sink.Expect("passed on")
	c := make(chan os.Signal)
	o.Peers, o.Output.Stdout, o.Output.Stderr, o.Signals = 2, out, told, c
	o.Program, o.Args = "sh", []string{"-c", `[ $ELRUN_INDEX = 1 ] || exec sleep 300; ` + script}
	go func() {
		<-out.Seen
		for i, s := range signals {
			if i > 0 {
				<-time.After(wire.RepeatPeriod) // an earlier signal would count as a repetition
			}
			c <- s
			<-told.Seen
		}
	}()
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range res.Exits {
		if alive(e.PID) {
			t.Errorf("peer %d is still there", e.Index)
		}
	}
	return res, told.String()
}

func TestRunInterrupted(t *testing.T) {
	res, _ := interrupted(t, `echo ready; exec sleep 300`, spec.Options{}, syscall.SIGINT)
	if res.Status != 130 {
		t.Errorf("result %+v, want 130", res)
	}
}

// deaf ignores signals. Its sleep ends with the process group.
const deaf = `trap '' INT TERM; echo ready; while :; do sleep 300; done`

func TestRunSecondSignalKills(t *testing.T) {
	res, err := interrupted(t, deaf, spec.Options{Grace: time.Hour}, syscall.SIGTERM, syscall.SIGTERM)
	if res.Status != 143 || !strings.Contains(err, "second signal") {
		t.Errorf("result %+v, stderr %q", res, err)
	}
}

func TestRunGraceEnds(t *testing.T) {
	res, err := interrupted(t, deaf, spec.Options{Grace: 10 * time.Millisecond}, syscall.SIGTERM)
	if res.Status != 143 || !strings.Contains(err, "killing them") {
		t.Errorf("result %+v, stderr %q", res, err)
	}
}

// If a peer is killed while it writes a checkpoint, a line names the file that is not written, and the flag that gives it more time
// if that was the cause.
func TestRunNamesTheUnwrittenFile(t *testing.T) {
	const file = "ck/step-000000000012.safetensors"
	saving, hour := sayEvent("saving", `"path":"`+file+`"`), spec.Options{Grace: time.Hour}
	for name, c := range map[string]struct {
		script  string
		options spec.Options
		signals []os.Signal
		want    string // "" if no line names the file
	}{
		"grace over":    {saving, spec.Options{Grace: 10 * time.Millisecond}, []os.Signal{syscall.SIGTERM}, " before it had written " + file + "; --grace gives it more than 10ms\n"},
		"second signal": {saving, hour, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, " before it had written " + file + "\n"},
		"written":       {saving + sayEvent("checkpoint", `"path":"`+file+`"`), hour, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, ""},
		"failed":        {saving + sayEvent("saving", `"path":"`+file+`","failed":"no space"`), hour, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, ""},
		"dropped":       {saving + sayEvent("dropped", `"events":3`), hour, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, ""},
	} {
		res, err := interrupted(t, c.script+deaf, c.options, c.signals...)
		if res.Status != 143 || strings.Contains(err, file) != (c.want != "") || !strings.Contains(err, c.want) {
			t.Errorf("%s: result %+v, stderr %q, want %q in it", name, res, err, c.want)
		}
	}
}

// A long path is cut at its beginning, and nothing is known about the file of a lost host.
func TestUnsaved(t *testing.T) {
	c := child{saving: strings.Repeat("é/", 100) + "step-000000000012.safetensors", late: true}
	got := c.unsaved(spec.Exit{PID: 1 << 22, Code: -1, Signal: syscall.SIGKILL}, 1000*time.Hour)
	if len(got) > say.LineRoom || !strings.Contains(got, "/step-000000000012.safetensors; --grace") || !utf8.ValidString(got) {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
	if got := c.unsaved(spec.Exit{Code: -1, Lost: true}, time.Second); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := sink.Expect("ready")
	stop := context.AfterFunc(t.Context(), cancel)
	defer stop()
	go func() {
		<-out.Seen
		cancel()
	}()
	res, err := Run(ctx, spec.Options{Program: "sh", Args: []string{"-c", "echo ready; exec sleep 300"}, Peers: 1, Output: spec.Output{Stdout: out}})
	if err != nil || res.Status != 143 {
		t.Errorf("got %+v, %v, want status 143", res, err)
	}
}

// The end of the context is reported with its cause. The next signal, as from a machine that shuts
// down, kills no peer; the signal after it kills the peers.
func TestRunCancelledThenSignalled(t *testing.T) {
	r := newRunner(spec.Options{Peers: 1, Output: spec.Output{Stdout: io.Discard, Stderr: sink.Expect("x")}, Grace: time.Hour}, "", wire.StartOrder{})
	out := r.o.Output.Stderr.(*sink.Expecting)
	p := &silentProcess{}
	r.procs.peers[0] = &child{Process: p}
	r.peers.job, _ = job.New(job.Config{Peers: 1, Grace: time.Hour})
	now := time.Now()
	r.cancel(errors.New("the machine goes"), now)
	r.cancel(errors.New("once more"), now)
	r.interrupt(syscall.SIGTERM, now.Add(time.Minute))
	r.interrupt(syscall.SIGTERM, now.Add(time.Minute+wire.RepeatPeriod/2)) // counts as a repetition
	if !slices.Equal(p.got, []syscall.Signal{syscall.SIGTERM}) || r.outcome.signal != syscall.SIGTERM {
		t.Errorf("the peer got %v, and the job's signal is %v", p.got, r.outcome.signal)
	}
	r.interrupt(syscall.SIGTERM, now.Add(time.Minute+wire.RepeatPeriod))
	if !slices.Equal(p.got, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}) {
		t.Errorf("the peer got %v after the second signal", p.got)
	}
	if err := r.report.Console.Close(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	want := []string{"elrun: the machine goes: asking 1 peer to leave", "elrun: terminated: the peers are leaving already; another signal kills them",
		"elrun: second signal (terminated): killing the peers"}
	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// silentProcess is a process that only accepts signals.
type silentProcess struct {
	proc.Process
	got []syscall.Signal
}

func (s *silentProcess) Signal(sig syscall.Signal) { s.got = append(s.got, sig) }

func (s *silentProcess) Ask(sig syscall.Signal) { s.got = append(s.got, sig) }

// If nobody reads the output, the job ends with SIGPIPE, like a process in a pipeline.
func TestRunBrokenOutput(t *testing.T) {
	res, err := Run(t.Context(), spec.Options{Program: "sh", Args: []string{"-c", "echo x; exec sleep 300"}, Peers: 1, Output: spec.Output{Stdout: sink.Broken{Err: syscall.EPIPE}}})
	if err != nil || res.Status != 128+int(syscall.SIGPIPE) {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestRunCannotStart(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for program, want := range map[string]string{
		"":                            "no program",
		"elrun-no-such-program":       "not found in PATH",
		filepath.Join(dir, "missing"): "no such file",
		dir:                           "is a directory",
		write("plain", "x", 0o644):    "not executable; if it is a program, chmod +x it",
		write("t.go", "x", 0o644):     "go build -o " + filepath.Join(dir, "t") + " " + filepath.Join(dir, "t.go"),
		write("t.py", "x", 0o644):     "elrun run -- python3 " + filepath.Join(dir, "t.py"),
		write("u.py", "x", 0o755):     "elrun run -- python3 " + filepath.Join(dir, "u.py"),
		write("bad", "neither ELF nor #!", 0o755): "neither a program",
	} {
		res, err := Run(t.Context(), spec.Options{Program: program, Peers: 2})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v, want %q", program, res, err, want)
		}
	}
}

func TestRunBadOptions(t *testing.T) {
	for _, o := range []spec.Options{{Peers: 0}, {Peers: spec.MaxPeers + 1}, {Peers: 1, Job: "a/b"},
		{Peers: 1, Network: spec.Network{Listen: "here"}}, {Peers: 1, Remote: spec.Remote{Copy: true}}, {Peers: 1, Membership: spec.Membership{Restart: -1}},
		{Join: true, Remote: spec.Remote{Hosts: []spec.Host{{Name: "a"}}}}} {
		o.Program = "true"
		if _, err := Run(t.Context(), o); !errors.Is(err, spec.ErrOptions) {
			t.Errorf("%+v: got %v, want ErrOptions", o, err)
		}
	}
}
