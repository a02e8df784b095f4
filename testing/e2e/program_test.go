package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// echo returns its argument.
func echo(_ context.Context, n int) (int, error) { return n, nil }

// alone returns the function of the peers in a program whose peers do not train. The function calls
// f and reports a result.
func alone(f func(ctx context.Context) error) func(ctx context.Context, g *elastic.Group) error {
	return func(ctx context.Context, g *elastic.Group) error {
		if _, err := g.Sessions().Next(ctx, 0); err != nil {
			return err
		}
		if err := f(ctx); err != nil {
			return err
		}
		return g.Report(elastic.Result{})
	}
}

// runRole runs a program, or the node of the program that this process is.
func runRole(ctx context.Context, p *launch.Program) error {
	_, err := p.Run(ctx, launch.Processes(launch.Options{}))
	return err
}

// measured is the number of calls that the role handle measures.
const measured = 20000

// handle is a role that measures calls between two processes.
func handle(ctx context.Context) error {
	p := launch.NewProgram("handle")
	call := launch.Serve(p, "echo", echo)
	p.Peers("caller", 1, alone(func(ctx context.Context) error {
		took := make([]time.Duration, measured)
		for i := range took {
			begun := time.Now()
			if got, err := call.Call(ctx, i); err != nil || got != i {
				return fmt.Errorf("got %d, %w, want %d", got, err, i)
			}
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		fmt.Printf("p50=%d p99=%d\n", took[measured/2].Nanoseconds(), took[measured/100*99].Nanoseconds())
		return nil
	}))
	return runRole(ctx, p)
}

// eight is a program of eight nodes: four peers, two tasks and two services. Each peer and each
// task prints that it is up when both services have answered its calls.
func eight(ctx context.Context) error {
	return runRole(ctx, eightNodes(func(context.Context) error { return nil }))
}

// endless is a program with the nodes of eight that does not end by itself.
func endless(ctx context.Context) error {
	return runRole(ctx, eightNodes(func(ctx context.Context) error {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM) // SIGTERM asks peers to leave at their next step
		defer stop()
		<-ctx.Done()
		return nil
	}))
}

func eightNodes(then func(ctx context.Context) error) *launch.Program {
	p := launch.NewProgram("eight")
	first, second := launch.Serve(p, "first", echo), launch.Serve(p, "second", echo)
	up := func(ctx context.Context) error {
		for _, h := range []launch.Handle[int, int]{first, second} {
			if _, err := h.Call(ctx, 1); err != nil {
				return err
			}
		}
		fmt.Println("is up")
		return then(ctx)
	}
	p.Peers("train", 4, alone(up))
	p.Task("left", up)
	p.Task("right", up)
	return p
}

// mortal is a program whose service ends at its first call.
func mortal(ctx context.Context) error {
	p := launch.NewProgram("mortal")
	call := launch.Serve(p, "fragile", func(context.Context, int) (int, error) { panic("too much") })
	p.Peers("train", 1, alone(func(ctx context.Context) error {
		for i := range 2 {
			_, err := call.Call(ctx, i)
			if !errors.Is(err, launch.ErrUnreachable) {
				return fmt.Errorf("got %w, want ErrUnreachable", err)
			}
			fmt.Printf("call %d: %v\n", i, err)
		}
		return nil
	}))
	return runRole(ctx, p)
}

// isUp waits until all four peers and both tasks of the program are up.
func isUp(t *testing.T, e *elrun) {
	t.Helper()
	e.Until(t, "six nodes that have called two others", func() bool {
		return len(regexp.MustCompile(`(?m)is up$`).FindAllString(e.Out.String(), -1)) == 6
	})
}

func TestProgramEnds(t *testing.T) {
	begun := time.Now()
	e := start(t, "eight", 4)
	isUp(t, e)
	t.Logf("8 nodes are up after %v", time.Since(begun))
	if status := e.Wait(t); status != 0 {
		t.Errorf("status %d", status)
	}
	e.job.CheckGone(t)
}

// A signal that ends the launcher, even SIGKILL, also ends all nodes, and no socket remains.
func TestProgramIsEnded(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGKILL: -1} {
		t.Run(sig.String(), func(t *testing.T) {
			e := start(t, "endless", 4)
			isUp(t, e)
			if n := len(e.job.Peers(t)); n != 8 {
				t.Errorf("%d processes, want 8", n)
			}
			e.Signal(t, sig)
			if status := e.Wait(t); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
			process.Until(t, "the end of all nodes", func() bool { return len(e.job.Peers(t)) == 0 })
			e.job.CheckGone(t)
		})
	}
}

// If a service ends and has no restarts left, its callers get an error at once, and elrun prints
// the reason.
func TestServiceDies(t *testing.T) {
	e := start(t, "mortal", 1)
	if status := e.Wait(t); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	e.Expect(t, "call 0: launch: call fragile: the service cannot be reached: the connection ended during the call",
		"call 1: launch: call fragile: the service cannot be reached: it has ended: it (pid ", "exited with status 2; the program has no launch.Restart for this node",
		"the program fails: its peers finished, but fragile did not")
	e.job.CheckGone(t)
}

// evaluatorJob starts the program examples/evaluator.
func evaluatorJob(t *testing.T, args ...string) (*elrun, *process.Log) {
	t.Helper()
	program := process.Example(t, "evaluator")
	log := process.NewLog(t, filepath.Join(t.TempDir(), "events"))
	e := &elrun{job: process.NewJob(t)}
	e.begin(t, exec.Command(process.Elrun(), append([]string{"-n", "3", "--name", e.job.Name, "--listen", listen(), "--events", log.Path, program}, args...)...))
	return e, log
}

// killEvaluator waits for a process of the service other than last, kills it, and returns its process ID.
func killEvaluator(t *testing.T, e *elrun, last int) int {
	t.Helper()
	pid := 0
	e.Until(t, "another process of the evaluator", func() bool {
		for _, p := range e.job.Peers(t) {
			if p.Env("ELRUN_NODE") == "eval" && p.PID != last {
				pid = p.PID
			}
		}
		return pid != 0
	})
	process.Signal(t, pid, syscall.SIGKILL)
	return pid
}

// Training continues while the evaluator is killed ten times, and elrun restarts the evaluator each
// time.
func TestEvaluatorKilled(t *testing.T) {
	e, log := evaluatorJob(t, "--steps", "10000000", "--pace", "1ms")
	e.Until(t, "a score", func() bool { return e.Says("after step 20: accuracy") })
	for last, i := 0, 0; i < 10; i++ {
		last = killEvaluator(t, e, last)
		before := log.Read(t).Step
		e.Until(t, "further steps", func() bool { return log.Read(t).Step > before+1 })
	}
	said := len(regexp.MustCompile(`accuracy`).FindAllString(e.Out.String(), -1))
	e.Until(t, "another score", func() bool {
		return len(regexp.MustCompile(`accuracy`).FindAllString(e.Out.String(), -1)) > said
	})
	if lost := process.After[event.Lost](log.Read(t).Events, time.Time{}); len(lost) > 0 {
		t.Errorf("peers were lost: %v", lost)
	}
	e.Signal(t, syscall.SIGTERM)
	if status := e.Wait(t); status != 143 {
		t.Errorf("status %d, want 143", status)
	}
	e.job.CheckGone(t)
}

// Deaths of the evaluator do not change the trained weights. The long form measures how much ten deaths delay a training of about
// 30 s. Runs with and without deaths alternate.
func TestEvaluatorCost(t *testing.T) {
	rounds, steps, kills := 2, "200", 1
	if long() {
		rounds, steps, kills = 6, "1200", 10
	}
	var took [2][]time.Duration
	var results []string
	for i := range rounds {
		e, log := evaluatorJob(t, "--steps", steps, "--pace", "5ms")
		e.Until(t, "a step", func() bool { return log.Read(t).Step > 0 })
		begun := time.Now()
		for last, k := 0, 0; k < kills && i%2 == 1; k++ {
			last = killEvaluator(t, e, last)
		}
		if status := e.Wait(t); status != 0 {
			t.Fatalf("status %d", status)
		}
		took[i%2] = append(took[i%2], time.Since(begun))
		results = append(results, regexp.MustCompile(`sha256=\w+`).FindString(e.Out.String()))
	}
	if len(slices.Compact(results)) != 1 {
		t.Errorf("results differ: %v", results)
	}
	for _, d := range took {
		slices.Sort(d)
	}
	middle := rounds / 4
	t.Logf("without deaths %v, with %d %v: %+.2f %%", took[0], kills, took[1], 100*(took[1][middle].Seconds()/took[0][middle].Seconds()-1))
}

// BenchmarkHandle measures a call between two processes on one host.
func BenchmarkHandle(b *testing.B) {
	for b.Loop() {
		cmd := exec.Command(process.Elrun(), "-n", "1", "--listen", "local", process.Self(b))
		cmd.Env = append(cmd.Environ(), roleVariable+"=handle")
		out, err := cmd.CombinedOutput()
		found := regexp.MustCompile(`p50=(\d+) p99=(\d+)`).FindSubmatch(out)
		if err != nil || found == nil {
			b.Fatalf("%v: %s", err, out)
		}
		for i, unit := range []string{"p50-ns/call", "p99-ns/call"} {
			n, err := strconv.Atoi(string(found[i+1]))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(n), unit)
		}
	}
}

// The program in docs/programs.md has the documented effect, in each way to start it.
func TestProgramsDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, source, _ := strings.Cut(string(text), "```go\n")
	source, _, _ = strings.Cut(source, "```\n")
	program := process.UserProgram(t, "sums", source)
	for _, c := range []struct {
		cmd   *exec.Cmd
		peers int
	}{{exec.Command(program), 3}, {exec.Command(process.Elrun(), "-n", "4", "--listen", "local", program), 4}} {
		e := process.Start(t, c.cmd)
		if status := e.Wait(t); status != 0 {
			t.Errorf("status %d", status)
		}
		for _, want := range []string{fmt.Sprintf("[log] step 3: %d\n", 3*c.peers), fmt.Sprintf("done steps=3 peers=%d ", c.peers)} {
			if !strings.Contains(e.Out.String(), want) {
				t.Errorf("%q is missing", want)
			}
		}
	}
}
