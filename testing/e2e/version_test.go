package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// endlessLoop is a program that trains until it is asked to leave.
const endlessLoop = `package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

func main() {
	ctx := context.Background()
	g, err := launch.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	step, sum := int64(0), []float64{0}
	for range g.Steps(ctx, elastic.Vectors(&step, &sum), 1<<40) {
		if step == 10 {
			fmt.Println("trains")
		}
		time.Sleep(time.Millisecond)
		sum[0]++
		step++
	}
}
`

// A peer whose elrun has another version of the protocol does not join the job, whichever version is
// the later one: it gives up at once and names both versions, and so does the elrun of the job, which goes on.
func TestOtherVersion(t *testing.T) {
	const next = "-tags=elrunnext" // transport/p2p/versionnext.go
	elrun := filepath.Join(filepath.Dir(process.Elrun()), "elrun-next")
	if err := process.Build(elrun, "cmd/elrun", next); err != nil {
		t.Fatal(err)
	}
	type version struct{ elrun, program, number string }
	now := version{process.Elrun(), process.UserProgram(t, "endless", endlessLoop), "4"}
	later := version{elrun, process.UserProgram(t, "endless-next", endlessLoop, next), "5"}
	for name, v := range map[string][2]version{"a later one joins": {now, later}, "an earlier one joins": {later, now}} {
		t.Run(name, func(t *testing.T) {
			job := process.NewJob(t)
			first := job.Start(t, exec.Command(v[0].elrun, "-n", "1", "--name", job.Name, "--listen", listen(), v[0].program))
			first.Expect(t, "trains")
			second := job.Start(t, exec.Command(v[1].elrun, "join", "--name", job.Name, "-n", "1", "--join-timeout", "1h", "--listen", listen(), v[1].program))
			if status := second.Wait(t); status != 1 || !second.Says("it runs another version of elrun: its protocol is "+v[0].number+", that of this program is "+v[1].number+
				"; use the same version at all peers of the job") {
				t.Errorf("status %d", status)
			}
			first.Expect(t, "a peer that wanted to join is refused: it runs another version of elrun: its protocol is "+v[1].number+", that of this program is "+v[0].number)
			if stdout, stderr, status := process.Command(t, "stop", job.Name); status != 0 || !strings.Contains(stdout, ": 1 peer was") {
				t.Errorf("status %d, %s%s", status, stdout, stderr)
			}
			if status := first.Wait(t); status != 0 {
				t.Errorf("status %d, %s", status, first.Err.String())
			}
		})
	}
}
