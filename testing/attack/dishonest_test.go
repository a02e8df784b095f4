package attack

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// dishonest is the local index of the member that forges or cheats.
const dishonest = 1

// forger is the state of a member that sends newcomers a state that differs from its own.
type forger struct{ *chain }

func (f forger) Save(w io.Writer) error {
	forged := *f.chain
	if f.step > 0 { // at step 0 all members compare their states
		forged.hash[0]++
	}
	return forged.Save(w)
}

// held returns the state that a member registers: c, or a forger of c at the dishonest member.
func held(g *elastic.Group, c *chain) elastic.State {
	if os.Getenv(roleVariable) == "forge" && g.Self().Index == dishonest {
		return forger{c}
	}
	return c
}

// cheat trains a line in exact mode with audits. The dishonest member negates its gradients.
func cheat(ctx context.Context, steps int64) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	w := make([]float32, 2)
	sign := float32(1)
	if g.Self().Index == dishonest {
		sign = -1
	}
	model := trainer.Model{
		Params: []trainer.Param{{Name: "w", Shape: []int{2}, Data: w}},
		Gradient: func(b *trainer.Batch) (loss float64, err error) {
			grad := b.Grad(0)
			for _, i := range b.Samples() {
				x := float32(i) / 100
				miss := w[0] + w[1]*x - (1 + 2*x)
				grad[0] += 2 * miss * sign
				grad[1] += 2 * miss * x * sign
				loss += float64(miss * miss)
			}
			return loss, nil
		},
	}
	return trainer.Run(ctx, g, model, trainer.Config{Samples: 96, GlobalBatch: 24, Microbatch: 4, Steps: steps,
		Gradients: trainer.Gradients{Exact: true, Audit: 0.01}, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.01),
		Hooks: trainer.Hooks{Done: func(r trainer.Result) { fmt.Printf("trained sha256=%s\n", r.SHA256) }}})
}

// A member that cheats in each step is named and put out, and the others finish with equal results.
// The number of steps until the first audit of the member is random. TestAuditNamesACheat in
// package trainer has a seed, and checks that it is less than 1,000.
func TestCheat(t *testing.T) {
	const steps = "2500" // no audit finds the cheat in so many steps with a probability of 1 in 8e10
	log := process.NewLog(t, filepath.Join(t.TempDir(), "events"))
	job := process.NewJob(t)
	cmd := exec.Command(process.Elrun(), "run", "-n", "3", "--name", job.Name, "--listen", "local", "--events", log.Path, process.Self(t))
	cmd.Env = append(os.Environ(), stepsVariable+"="+steps, roleVariable+"=cheat")
	p := job.Start(t, cmd)
	p.Wait(t)
	var named []string
	for _, e := range log.Read(t).Events {
		if a, ok := e.Body.(event.Audit); ok {
			named = append(named, a.Who...)
			if !a.Out || len(a.Who) != 1 || a.Who[0] != named[0] {
				t.Errorf("step %d: %+v", e.Step, a)
			}
			if e.Peer == a.Who[0] && e.Index != dishonest {
				t.Errorf("peer %d is named", e.Index)
			}
		}
	}
	if len(named) == 0 {
		t.Fatalf("nobody is named: %s", p.Err.String())
	}
	if said := p.Err.String(); !strings.Contains(said, "audit of step") || !strings.Contains(said, "put out") {
		t.Errorf("elrun does not say it: %s", said)
	}
	results := regexp.MustCompile(`\[([02])\] trained sha256=(\w+)`).FindAllStringSubmatch(p.Out.String(), -1)
	if len(results) != 2 || results[0][2] != results[1][2] {
		t.Errorf("results %q", results)
	}
	job.CheckGone(t)
}

// One of three members forges the state that it sends. A newcomer refuses the forged state, and
// copies the state of the two other members. The newcomer names no honest member as forger. It
// names the forger only if the forged state arrives before the copy is complete.
// TestForgersAreNamed of package transfer tests every such case.
func TestForgedState(t *testing.T) {
	t.Setenv(roleVariable, "forge")
	j := startJob(t, 3)
	if _, says, status := process.Command(t, "scale", j.Name, "4"); status != 0 {
		t.Fatal(says)
	}
	j.Until(t, "the newcomer to train", func() bool { return strings.Count(j.Out.String(), " size=4") == 4 })
	j.end(t)
	forgers := map[string]bool{}
	for _, e := range j.log.Read(t).Events {
		if f, ok := e.Body.(event.Forged); ok {
			forgers[f.Who] = true
		}
	}
	for _, e := range j.log.Events {
		if forgers[e.Peer] && e.Index != dishonest {
			t.Errorf("peer %d is named", e.Index)
		}
	}
	if len(forgers) > 1 {
		t.Errorf("named: %v", forgers)
	}
	results := regexp.MustCompile(`result steps=(\d+) hash=(\w+)`).FindAllStringSubmatch(j.Out.String(), -1)
	for _, r := range results {
		if r[2] != results[0][2] {
			t.Errorf("results differ: %q", results)
		}
	}
	if len(results) != 4 {
		t.Errorf("results %q", results)
	}
	j.CheckGone(t)
}
