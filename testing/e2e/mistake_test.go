package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

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
	for t := range g.Steps(ctx, elastic.Vectors(&step, w), 50) {
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
