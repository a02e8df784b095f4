package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// readmeProgram returns the path of the program in docs/quickstart.md whose loop the README shows.
// It makes each step take a while, starts each peer with other weights, prints more digits, and
// reads environment variables: E2E_STEPS is the number of steps, E2E_FINISH is the path of a file
// that ends the job, and E2E_MISTAKE names a mistake that rank 1 makes in step 10.
func readmeProgram(t *testing.T) string {
	t.Helper()
	text := readPage(t, "../../docs/quickstart.md").files["my/line/main.go"]
	const loop = "lo, hi := t.Part(batch)"
	change := []string{
		"[]float64{0, 0}", "[]float64{rand.NormFloat64(), rand.NormFloat64()}", "%.1f + %.1f", "%.3f + %.3f",
		"const steps, batch, rate = 300, 64, 0.5", "var steps, _ = strconv.ParseInt(os.Getenv(\"E2E_STEPS\"), 10, 64)\n\nconst batch, rate = 64, 0.5",
		"\t\"log\"\n\t\"math/rand/v2\"\n", "\t\"log\"\n\t\"math/rand/v2\"\n\t\"os\"\n\t\"strconv\"\n\t\"time\"\n",
		"sum := make([]float64, len(w))", "sum := make([]float64, len(w))\n\ttime.Sleep(10 * time.Millisecond)",
		loop, `if _, err := os.Stat(os.Getenv("E2E_FINISH")); err == nil {
			t.Stop()
		}
		m := os.Getenv("E2E_MISTAKE")
		if t.Rank != 1 || step != 9 {
			m = ""
		}
		if m == "break" {
			break
		} else if m == "panic" {
			panic(m)
		} else if m == "count" {
			step++
		} else if m == "no sum" {
			continue
		} else if m == "part" {
			t.Part(5)
		}
		` + loop,
	}
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(text, change[i]) {
			t.Fatalf("the program has no %q", change[i])
		}
		text = strings.Replace(text, change[i], change[i+1], 1)
	}
	return process.UserProgram(t, "line", text)
}

// startProgram starts a separate program under elrun.
func startProgram(t *testing.T, program string, n int, env ...string) *elrun {
	t.Helper()
	e := &elrun{job: process.NewJob(t)}
	e.launch(t, []string{"run", "-n", strconv.Itoa(n), "--name", e.job.Name, "--listen", listen(), program}, env...)
	return e
}

// status returns the output of elrun status, or the zero value if the command fails.
func (e *elrun) status(t *testing.T) (s launch.Status) {
	t.Helper()
	out, _, status := process.Command(t, "status", e.job.Name, "--json")
	if status == 0 {
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// running waits until n members run and have reached a step. It returns the status.
func (e *elrun) running(t *testing.T, n int, step int64) (s launch.Status) {
	t.Helper()
	e.Until(t, fmt.Sprintf("%d peers at step %d", n, step), func() bool {
		s = e.status(t)
		count := 0
		for _, m := range s.Members {
			if m.State == "running" {
				count++
			}
		}
		return count == n && s.Step >= step
	})
	return s
}

// The program of the README runs with peers that begin with different weights. Peers are killed, leave and join. The job ends
// with status 0, the right last line, and the weights of a single undisturbed process.
func TestReadmeProgram(t *testing.T) {
	program := readmeProgram(t)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), readmeSteps)
	out, err := cmd.Output()
	// Package launch prints the result when the program closes its group, and then the program its own line.
	result, alone, found := strings.Cut(string(out), "\n")
	if err != nil || !found || !strings.HasPrefix(result, "done steps=600 peers=1 sha256=") {
		t.Fatalf("alone: %v, %q", err, out)
	}
	runs := 1
	if long() {
		runs = 20
	}
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) { disturbReadmeProgram(t, program, alone) })
	}
}

// readmeSteps is the environment of a program that takes 600 steps.
const readmeSteps = "E2E_STEPS=600"

func disturbReadmeProgram(t *testing.T, program, alone string) {
	e := startProgram(t, program, 3, readmeSteps)
	s := e.running(t, 3, 20)
	for _, m := range s.Members {
		if m.Speed <= 0 || m.Share <= 0 || m.StepMS <= 0 || s.Of != 600 {
			t.Errorf("status of %d steps: %+v", s.Of, m)
		}
	}
	victim := s.Members[1]
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.running(t, 2, 30)
	scale := func(n string) {
		if _, errors, status := process.Command(t, "scale", "--elrun", strconv.Itoa(e.PID()), e.job.Name, n); status != 0 {
			t.Fatalf("scale: status %d, %s", status, errors)
		}
	}
	scale("4")
	e.running(t, 4, 40)
	second := &elrun{job: e.job}
	second.launch(t, []string{"join", "--name", e.job.Name, "-n", "1", "--listen", listen(), program}, readmeSteps)
	e.running(t, 5, 50)
	scale("2")
	e.running(t, 3, 60)
	if a, b := e.Wait(t), second.Wait(t); a != 0 || b != 0 {
		t.Errorf("status %d and %d", a, b)
	}
	done := regexp.MustCompile(`(?m)^done steps=600 peers=3 sha256=[0-9a-f]{64}$`)
	if !done.MatchString(e.Out.String()) || !done.MatchString(second.Out.String()) {
		t.Error("no last line")
	}
	if n := strings.Count(e.Out.String()+second.Out.String(), "] "+alone); n != 3 {
		t.Errorf("%d peers ended with %s", n, alone)
	}
	if n := strings.Count(e.Err.String(), "began with another state"); n != 1 {
		t.Errorf("other initial states were reported %d times", n)
	}
	e.Expect(t, "is lost", "the job finished, but before its end")
}

// A mistake in the loop of one peer ends the job with status 1. Every peer prints the mistake and
// ends.
func TestReadmeProgramWrong(t *testing.T) {
	program := readmeProgram(t)
	for name, want := range map[string]string{
		"break":  "left its loop in step 10 by break",
		"panic":  "left its loop in step 10 by break, return or a panic",
		"count":  "took the state from step 9 to step 11",
		"no sum": "neither failed nor committed step 10",
		"part":   "calls Part with 5",
	} {
		t.Run(name, func(t *testing.T) {
			e := startProgram(t, program, 3, "E2E_STEPS=100000", "E2E_MISTAKE="+name)
			if status := e.Wait(t); status != 1 {
				t.Errorf("status %d", status)
			}
			if strings.Contains(e.Out.String(), "\ndone steps=") {
				t.Error("there is a result")
			}
			for i := range 3 {
				if i == 1 && name == "panic" {
					continue
				}
				if !regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] .*%s`, i, regexp.QuoteMeta(want))).MatchString(e.Out.String() + e.Err.String()) {
					t.Errorf("peer %d does not say %q", i, want)
				}
			}
		})
	}
}

// The example of a loop of one's own saves its state, goes on from there, and refuses the folder of
// another run. Its step events have the loss that it reports.
func TestOwnLoopSaves(t *testing.T) {
	dir := t.TempDir()
	program, saved, log := filepath.Join(dir, "ownloop"), filepath.Join(dir, "ck"), filepath.Join(dir, "events")
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/ownloop").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, run := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--steps", "230"}, 0, "done steps=230 peers=2"},
		{[]string{"--steps", "300", "--resume", saved}, 0, "resumed after step 230 of run "},
		{[]string{"--steps", "300"}, 1, "write to another folder, or resume that run"},
	} {
		args := append([]string{"-n", "2", "--listen", "local", "--events", log, "--", program, "--pace", "1ms", "--checkpoint", saved}, run.args...)
		stdout, stderr, status := process.Command(t, args...)
		if status != run.status || !strings.Contains(stdout+stderr, run.want) {
			t.Fatalf("%q: status %d, want %d and %q\n%s%s", run.args, status, run.status, run.want, stdout, stderr)
		}
		if run.status != 0 {
			return
		}
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var e event.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if s, ok := e.Body.(event.Step); ok && s.Metrics["loss"] <= 0 {
				t.Errorf("step %d has the values %v", e.Step, s.Metrics)
			}
		}
	}
}
