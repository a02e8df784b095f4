package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// forget is a loop that forgets the AllReduce.
func forget(ctx context.Context) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	step, w := int64(0), make([]float64, 4)
	for t := range g.Steps(ctx, elastic.Vectors(&step, &w), 50) {
		for i, hi := t.Part(64); i < hi; i++ {
			w[i%len(w)] += float64(i)
		}
		step++
	}
	return errors.Join(g.Err(), g.Close())
}

// A loop that forgets the AllReduce ends at all peers with an error, and the job with status 1 and the mistake in its last line:
// also on a host with too few processors, and if one peer gets about a tenth of its share of the time.
func TestForgottenAllReduce(t *testing.T) {
	runs := 2
	if long() {
		runs = 20
	}
	for _, load := range []string{"", "busy", "slow peer"} {
		for run := range runs {
			t.Run(fmt.Sprint(load, run), func(t *testing.T) { forgetUnder(t, load) })
		}
	}
}

// forgetUnder runs the job once.
func forgetUnder(t *testing.T, load string) {
	const peers = 6
	e := &elrun{job: process.NewJob(t)}
	args := []string{"run", "-n", fmt.Sprint(peers), "--name", e.job.Name, "--listen", listen()}
	if load != "" {
		for range 4 {
			defer process.Start(t, exec.Command("sh", "-c", "while :; do :; done")).Kill()
		}
	}
	if load == "slow peer" {
		args = append(args, "sh", "-c", `[ $ELRUN_INDEX != 5 ] || exec nice "$0"; exec "$0"`)
	}
	e.run(t, "forget", args)
	if status := e.Wait(t); status != 1 {
		t.Errorf("status %d", status)
	}
	const mistake = "differs from the others' state"
	e.Expect(t, "the job fails by a mistake of its program", mistake)
	if n := strings.Count(e.Out.String(), mistake); n != peers {
		t.Errorf("%d peers say what is wrong", n)
	}
	if strings.Contains(e.Out.String(), "done steps=") {
		t.Error("there is a result")
	}
}

// replaced returns a loop that replaces the slice of its state in each step, until the file of finishVariable exists.
func replaced(byAddress bool) func(context.Context) error {
	return func(ctx context.Context) error {
		g, err := launch.Init(ctx)
		if err != nil {
			return err
		}
		step, w := int64(0), []float64{0}
		state := elastic.Vectors(&step, w)
		if byAddress {
			state = elastic.Vectors(&step, &w)
		}
		for t := range g.Steps(ctx, state, 1<<40) {
			one := []float64{1}
			if err := collective.AllReduce(ctx, t.Comm, one, one, collective.Average[float64]); err != nil {
				continue
			}
			w = []float64{w[0] + one[0]}
			step++
			if _, err := os.Stat(os.Getenv(finishVariable)); err == nil {
				t.Stop()
			}
		}
		if err := g.Err(); err != nil {
			return errors.Join(err, g.Close())
		}
		fmt.Println("each step counts:", w[0] == float64(step))
		return g.Close()
	}
}

// A newcomer to a job whose loop replaces the slice of its state begins with the present values, if the state has the address of
// the slice. Otherwise it ends with the remedy, and the job goes on.
func TestReplacedSlice(t *testing.T) {
	const remedy = "elastic.Vectors(&step, &w)"
	for role, want := range map[string][]string{
		"replaced":          {"peer 2 ("},
		"replaced by value": {"the state has not changed in 10 steps", "refused: the state has not changed", "peer 2 (", "has left"},
	} {
		t.Run(role, func(t *testing.T) {
			e := start(t, role, 2)
			e.running(t, 2, 20)
			if _, stderr, status := process.Command(t, "scale", e.job.Name, "3"); status != 0 {
				t.Fatalf("scale: status %d, stderr %q", status, stderr)
			}
			e.Expect(t, append(want, "has joined")...)
			members := 3 - len(want)/4
			e.running(t, members, 30)
			if err := os.WriteFile(e.finish, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if status := e.Wait(t); status != 0 {
				t.Errorf("status %d", status)
			}
			out := e.Out.String()
			if n := strings.Count(out, "each step counts: true"); n != members || strings.Contains(out, "each step counts: false") {
				t.Errorf("%d peers have counted each step, want %d", n, members)
			}
			if strings.Contains(out, remedy) != (len(want) > 1) {
				t.Errorf("the remedy is not told as it should")
			}
		})
	}
}
