package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

const (
	// fatalVariable says what sample fatalSample does to its process: panic, exit, or "" for nothing.
	fatalVariable = "E2E_FATAL"
	fatalSample   = 1234
)

// fatal trains with trainer.Run. The model has one parameter, whose gradient is the sum of the samples.
func fatal(ctx context.Context) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	fmt.Println("pid", os.Getpid())
	w := make([]float32, 1)
	model := trainer.Model{Params: []trainer.Param{{Name: "w", Shape: []int{1}, Data: w}}, Gradient: func(b *trainer.Batch) (float64, error) {
		<-time.After(time.Millisecond)
		if slices.Contains(b.Samples(), fatalSample) {
			switch os.Getenv(fatalVariable) {
			case "panic":
				panic(fmt.Sprintf("bad sample %d", fatalSample))
			case "exit":
				fmt.Fprintln(os.Stderr, "cannot read sample", fatalSample)
				os.Exit(3)
			}
		}
		for _, s := range b.Samples() {
			b.Grad(0)[0] += float32(s)
		}
		return 1, nil
	}}
	cfg := trainer.Config{Samples: 2000, GlobalBatch: 64, Microbatch: 4, Passes: 2, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.001)}
	cfg.Hooks.OnStep = func(r trainer.StepReport) {
		if r.Step%4 == 0 {
			fmt.Println("step", r.Step)
		}
	}
	return errors.Join(trainer.Run(ctx, g, model, cfg), g.Close())
}

// A sample that ends the process of each peer that computes it ends the job with status 1 after the second death, and the last line
// names the step, the samples and the cause. Also if the peers are on other hosts, which an agent starts.
func TestFatalSample(t *testing.T) {
	for _, peers := range [][]string{{"-n", "2"}, {"-n", "4"}, {"-n", "4", "--restart", "5"}, {"-H", "localhost:4"}} {
		for how, says := range map[string]string{
			"panic": `exited with status 2: panic: bad sample 1234`,
			"exit":  `exited with status 3: cannot read sample 1234`,
		} {
			t.Run(fmt.Sprint(peers, how), func(t *testing.T) {
				e := &elrun{job: process.NewJob(t)}
				e.launch(t, slices.Concat([]string{"run", "--name", e.job.Name, "--listen", listen(), "-x", roleVariable, "-x", fatalVariable}, peers,
					[]string{process.Self(t)}), roleVariable+"=fatal", fatalVariable+"="+how)
				if status := e.Wait(t); status != 1 {
					t.Errorf("status %d", status)
				}
				line := regexp.MustCompile(`(?m)^elrun: the job fails by a mistake of its program: step \d+, samples (\d+, )*1234(, \d+)*: peers \d and \d ` + says + `$`)
				if out := e.Err.String(); len(line.FindAllString(out, -1)) != 1 {
					t.Errorf("no line %v in %s", line, out)
				}
				if n := strings.Count(e.Err.String(), "sample 1234"); n > 3 { // two deaths, and the line
					t.Errorf("%d lines name the sample", n)
				}
				e.job.CheckGone(t)
			})
		}
	}
}

// Deaths by a signal are no fault of a sample: the job goes on, whatever the peers compute.
func TestSignalsAreNoFaultOfASample(t *testing.T) {
	for name, sh := range map[string][]string{"direct": nil, "by a shell": {"sh", "-c", `"$0"; exit $?`}} {
		t.Run(name, func(t *testing.T) {
			e := &elrun{job: process.NewJob(t)}
			e.launch(t, slices.Concat([]string{"run", "-n", "4", "--name", e.job.Name, "--listen", listen(), "--"}, sh, []string{process.Self(t)}), roleVariable+"=fatal")
			e.Expect(t, "step 8\n", "[0] pid", "[1] pid", "[2] pid", "[3] pid")
			for _, pid := range regexp.MustCompile(`pid (\d+)`).FindAllStringSubmatch(e.Out.String(), 2) {
				n, _ := strconv.Atoi(pid[1])
				if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			if status := e.Wait(t); status != 0 {
				t.Errorf("status %d", status)
			}
			e.Expect(t, "done steps=64 peers=2")
			e.job.CheckGone(t)
		})
	}
}
