package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// programRole is the beginning of the role of a node of program. The name of the job follows.
const programRole = "program "

// programSteps is the number of training steps in program.
const programSteps = 40

// program returns a program whose peers fit a line. A service receives the reports of the peers,
// and a task reads them from the service.
func program() *launch.Program {
	p := launch.NewProgram("line")
	told := make(chan int64, programSteps+1)
	tell := launch.Serve(p, "board/tell", func(_ context.Context, step int64) (struct{}, error) {
		told <- step
		return struct{}{}, nil
	}, launch.Group("side"))
	next := launch.Serve(p, "board/next", func(ctx context.Context, _ struct{}) (int64, error) {
		select {
		case step := <-told:
			return step, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	refuse := launch.Serve(p, "refuse", func(_ context.Context, r string) (string, error) { return "", errors.New("no " + r) })
	p.Peers("train", 3, func(ctx context.Context, g *elastic.Group) error { return trainLine(ctx, g, tell) })
	p.Task("watch", func(ctx context.Context) error {
		if _, err := refuse.Call(ctx, "way"); !errors.Is(err, launch.ErrHandler) {
			return fmt.Errorf("got %w, want that the handler failed", err)
		}
		for step := int64(0); step < programSteps; {
			var err error
			if step, err = next.Call(ctx, struct{}{}); err != nil {
				return err
			}
		}
		fmt.Println("the task has seen the last step")
		return nil
	}, launch.Group("side"))
	return p
}

// trainLine fits the line y = 1 + 2 x. The peer with rank 0 calls tell after every fourth step, and
// every peer calls tell at the end.
func trainLine(ctx context.Context, g *elastic.Group, tell launch.Handle[int64, struct{}]) error {
	w := trainer.Param{Name: "w", Shape: []int{2}, Data: make([]float32, 2)}
	model := trainer.Model{Params: []trainer.Param{w}, Gradient: func(b *trainer.Batch) (loss float64, err error) {
		grad := b.Grad(0)
		for _, i := range b.Samples() {
			x := float32(i) / 96
			miss := w.Data[0] + w.Data[1]*x - (1 + 2*x)
			grad[0] += 2 * miss
			grad[1] += 2 * miss * x
			loss += float64(miss) * float64(miss)
		}
		return loss, nil
	}}
	run := trainer.New(g, model, trainer.Config{Samples: 96, GlobalBatch: 24, Microbatch: 4, Steps: programSteps,
		Gradients: trainer.Gradients{Exact: true}, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.3)})
	for p := range run.Points(ctx, trainer.Interval(4)) {
		if rank, _ := p.Rank(); rank > 0 {
			continue
		}
		if _, err := tell.Call(ctx, p.Step); err != nil {
			p.Fail(err)
		}
	}
	if err := run.Err(); err != nil {
		return err
	}
	_, err := tell.Call(ctx, programSteps)
	return err
}

// runProgram runs a command in the role of a node of program to its end, and returns the SHA-256 of
// the result.
func runProgram(t *testing.T, j *process.Job, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Env = append(os.Environ(), roleVariable+"="+programRole+j.Name)
	e := j.Start(t, cmd)
	if status := e.Wait(t); status != 0 {
		t.Fatalf("status %d", status)
	}
	if !e.Says("the task has seen the last step") {
		t.Error("the task did not end by itself")
	}
	j.CheckGone(t)
	found := regexp.MustCompile(`done steps=\d+ peers=3 .*sha256=([0-9a-f]{64})`).FindStringSubmatch(e.Out.String())
	if found == nil {
		t.Fatalf("no result of 3 peers")
	}
	return found[1]
}

// A program has the same result, bit for bit, with its nodes as goroutines, as processes, or on
// several hosts.
func TestProgram(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), process.Limit)
	defer cancel()
	result, err := program().Run(ctx, launch.Goroutines())
	if err != nil || result.Done == nil {
		t.Fatalf("got %+v, %v", result, err)
	}
	j := process.NewJob(t)
	flags := []string{"--name", j.Name, "--ssh", s.ssh(), "--connect-timeout", process.Limit.String(), "-x", roleVariable + "=" + programRole + j.Name}
	for name, cmd := range map[string]*exec.Cmd{
		"itself":     exec.Command(process.Self(t)),
		"processes":  exec.Command(process.Elrun(), "-n", "3", "--name", j.Name, process.Self(t)),
		"over hosts": exec.Command(process.Elrun(), append(flags, "-H", "a,b,c", process.Self(t))...),
	} {
		if got := runProgram(t, j, cmd); got != result.Done.SHA256 {
			t.Errorf("%s: sha256 %s, as goroutines %s", name, got, result.Done.SHA256)
		}
	}
}
