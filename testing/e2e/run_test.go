package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

func TestBarrier(t *testing.T) {
	begin := time.Now()
	e := start(t, "barrier", 8)
	if status := e.Wait(t); status != 0 {
		t.Fatalf("status %d", status)
	}
	t.Logf("8 peers joined, did a barrier and ended in %v", time.Since(begin))
	e.expectRanks(t, 8)
}

func TestCannotRun(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{"no-such-program": "not found in PATH", "./missing": "no such file",
		plain: "not executable", t.TempDir(): "is a directory"} {
		_, stderr, status := process.Command(t, "-n", "2", program, "--flag")
		if status != 1 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, stderr %q", program, status, stderr)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"--no-such-flag", "ls"}, {"-n", "x", "ls"}, {"-n", "0", "ls"}, {"--transport", "pigeon", "ls"},
		{"--name", "a/b", "ls"}, {"bench", "nonsense"}, {"bench", "allreduce", "--dtype", "int7"}, {"-n", "100000", "ls"}} {
		if _, stderr, status := process.Command(t, args...); status != 2 || stderr == "" {
			t.Errorf("%q: status %d, stderr %q", args, status, stderr)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-n", "1", "echo", "-n", "--np", "--", "x"}, {"run", "-n", "1", "--", "echo", "-n", "--np", "--", "x"},
		{"-n", "1", "--", "echo", "-n", "--np", "--", "x"}} {
		if stdout, _, status := process.Command(t, args...); status != 0 || stdout != "[0] --np -- x\n" {
			t.Errorf("%q: status %d, stdout %q", args, status, stdout)
		}
	}
	if _, stderr, status := process.Command(t, "run", "--", "bench"); status != 1 || !strings.Contains(stderr, `"bench"`) {
		t.Errorf("a program named like a subcommand: status %d, %q", status, stderr)
	}
}

func TestExitsBeforeJoining(t *testing.T) {
	for _, status := range []string{"0", "7"} {
		t.Run(status, func(t *testing.T) {
			t.Setenv("E2E_STATUS", status)
			e := start(t, "early", 3)
			if got := e.Wait(t); got != 1 {
				t.Errorf("status %d, want 1", got)
			}
			e.Expect(t, "peer 1 ", "exited with status "+status, "are told to end",
				"[0] error: launch: join job "+e.job.Name+": launcher ended the job", "[2] error: launch: join job "+e.job.Name+": launcher ended the job")
		})
	}
}

func TestFlood(t *testing.T) {
	e := start(t, "flood", 3)
	if status := e.Wait(t); status != 0 {
		t.Fatalf("status %d", status)
	}
	out := e.Out.String()
	if n := strings.Count(out, "[0] "+strings.Repeat("x", 99)+"\n"); n != 200_000 {
		t.Errorf("%d of 200000 lines", n)
	}
	// elrun prints the output of a quiet peer long before the end of the flood.
	if i := strings.Index(out, "[1] half of it\n"); i < 0 || strings.Count(out[i:], "\n") < 50_000 {
		t.Error("a quiet peer had to wait for the flooding one")
	}
}

func TestKilledPeer(t *testing.T) {
	e := start(t, "loop", 3)
	e.expectRanks(t, 3)
	e.Expect(t, "sums")
	e.signalPeer(t, 1, syscall.SIGKILL)
	if status := e.Wait(t); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	for _, survivor := range []int{0, 2} {
		e.Expect(t, fmt.Sprintf("[%d] error: ", survivor))
	}
	if n := strings.Count(e.Out.String(), e.field(t, 1, "id")); n < 3 { // in its own line and in two errors
		t.Errorf("survivors do not name the dead peer")
	}
	e.Expect(t, "peer 1 ("+e.field(t, 1, "id")+") is lost: it was killed by signal 9 (killed), pid "+e.field(t, 1, "pid"),
		"the job did not finish; likely cause: peer 1 (pid ")
}

func TestInterrupted(t *testing.T) {
	for role, ready := range map[string][]string{"half": {"waiting", "idle"}, "loop": {"[0] sums", "[2] sums"}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("%s-%d", role, sig), func(t *testing.T) {
				e := start(t, role, 3)
				e.Expect(t, ready...)
				e.Signal(t, sig)
				if status := e.Wait(t); status != 128+int(sig) {
					t.Errorf("status %d, want %d", status, 128+int(sig))
				}
				if n := process.Sockets(t, e.job.Name); n != 0 {
					t.Errorf("%d sockets are left", n)
				}
			})
		}
	}
}

// A signal at any moment of the start ends all processes.
func TestInterruptedEarly(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			e := start(t, "loop", 3)
			process.Until(t, "a process", func() bool { return len(e.peers(t)) > i%4 || i%4 == 3 })
			e.Signal(t, syscall.SIGTERM)
			// The kernel kills elrun if elrun does not handle signals yet.
			if status := e.Wait(t); status != 143 && status != -1 {
				t.Errorf("status %d, want 143", status)
			}
		})
	}
}

func TestSecondSignal(t *testing.T) {
	e := start(t, "deaf", 2)
	e.Expect(t, "[0] sums", "[1] sums")
	begin := time.Now()
	e.Signal(t, syscall.SIGTERM)
	e.Expect(t, "elrun: terminated: passed on to 2 peers")
	process.Until(t, "a signal that counts as the second", func() bool {
		_ = e.Cmd.Process.Signal(syscall.SIGTERM) // Signal fails if elrun has ended after the previous signal
		return strings.Contains(e.Err.String(), "second signal (terminated): killing the peers")
	})
	if took := time.Since(begin); took < time.Second {
		t.Errorf("a repetition after %v counts as the second signal", took)
	}
	if status := e.Wait(t); status != 143 {
		t.Errorf("status %d, want 143", status)
	}
}

// Peers end with their launcher, even those that ignore signals.
func TestLauncherKilled(t *testing.T) {
	for _, role := range []string{"loop", "deaf", "half"} {
		t.Run(role, func(t *testing.T) {
			e := start(t, role, 3)
			if role == "half" {
				e.Expect(t, "waiting", "[1] idle", "[2] idle")
			} else {
				e.Expect(t, "[0] sums", "[1] sums", "[2] sums")
			}
			begin := time.Now()
			e.Signal(t, syscall.SIGKILL)
			process.Until(t, "the end of all peers", func() bool { return len(e.peers(t)) == 0 })
			t.Logf("peers were gone after %v", time.Since(begin))
			process.Until(t, "the end of all sockets", func() bool { return process.Sockets(t, e.job.Name) == 0 })
			if stdout, _, _ := process.Command(t, "ps"); strings.Contains(stdout, e.job.Name) {
				t.Errorf("ps lists a dead job:\n%s", stdout)
			}
		})
	}
}

func TestDone(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "events")
	e := start(t, "steps", 2, "--events", log, "--log-dir", filepath.Join(dir, "logs"))
	if status := e.Wait(t); status != 0 {
		t.Fatalf("status %d", status)
	}
	if !strings.HasSuffix(e.Out.String(), "\ndone steps=20 peers=2 sha256=abcd\n") {
		t.Error("the last line is not the result")
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(b)) {
		var head struct{ Event, Peer string }
		if err := json.Unmarshal([]byte(line), &head); err != nil || (head.Peer == "") != (head.Event == "job") {
			t.Errorf("line %q: %v", line, err)
		}
		count[head.Event]++
	}
	if count["view"] < 2 || count["step"] != 40 || count["done"] != 2 {
		t.Errorf("events %v", count)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "logs", "1.log")); err != nil || !strings.HasPrefix(string(b), "joined rank=1") {
		t.Errorf("log of peer 1: %q, %v", b, err)
	}
}

func TestResultsDiffer(t *testing.T) {
	e := start(t, "disagree", 2)
	if status := e.Wait(t); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	e.Expect(t, "peers report different results", "abcd0", "abcd1")
	if strings.Contains(e.Out.String(), "done") {
		t.Error("a result was printed")
	}
}

func TestStallIsTold(t *testing.T) {
	e := start(t, "stall", 3)
	e.expectRanks(t, 3)
	told := "for peer 2 (" + e.field(t, 2, "id") + ") in barrier"
	e.Expect(t, "has waited", told)
	e.signalPeer(t, 2, syscall.SIGUSR1)
	if status := e.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	if all := e.Err.String(); strings.Count(all, told) != 1 || !strings.Contains(all, " (not in the call)\n") {
		t.Errorf("want one line that names the culprit, and its phase")
	}
}

// Garbage from strangers at a peer's port does not disturb the job.
func TestGarbageAtPort(t *testing.T) {
	e := start(t, "loop", 2)
	e.Expect(t, "[0] sums", "[1] sums")
	for _, garbage := range []string{"", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("\xff", 1<<20),
		"\x13/multistream/1.0.0\n\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n\x16\x03\x01\xff\xff"} {
		throw(t, e.field(t, 0, "addrs"), garbage)
	}
	before := strings.Count(e.Out.String(), "[0] sums")
	process.Until(t, "more sums", func() bool { return strings.Count(e.Out.String(), "[0] sums") > before+1 })
	e.Signal(t, syscall.SIGTERM)
	e.Wait(t)
	if strings.Contains(e.Out.String(), "error") && !strings.Contains(e.Err.String(), "terminated") {
		t.Error("a peer failed")
	}
}

// throw sends garbage to the first TCP address in a list of multiaddrs, and reads the answer for at
// most 200 ms.
func throw(t *testing.T, addrs, garbage string) {
	t.Helper()
	parts := strings.Split(strings.Fields(addrs)[0], "/") // "", ip4, host, tcp, port
	conn, err := net.Dial("tcp", net.JoinHostPort(parts[2], parts[4]))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = conn.Write([]byte(garbage)) // the peer may close the connection at any time
	_, _ = io.Copy(io.Discard, conn)
}
