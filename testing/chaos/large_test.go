package chaos

import (
	"cmp"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A peer that holds much memory is killed. The others take it for dead before the kernel has freed the memory, and the launcher's
// line has the status of the process all the same. The long form measures the time to the next step.
func TestKillLarge(t *testing.T) {
	for _, transport := range []string{"auto", "direct"} {
		for _, mb := range pick([]int{200}, []int{16, 1000, 4000}) {
			t.Run(fmt.Sprintf("%s/%dMB", transport, mb), func(t *testing.T) { killLarge(t, transport, mb) })
		}
	}
}

// killLarge is TestKillLarge for peers with mb MiB of memory.
func killLarge(t *testing.T, transport string, mb int) {
	const peers = 3
	var all []latency
	for range cmp.Or(option[int]("runs"), pick(1, 5)) {
		j := start(t, spec{Samples: 20 * globalBatch, Steps: 1000, Pace: stepPace(5*time.Millisecond, peers), Ballast: mb}, peers, "--transport", transport)
		j.until(t, "steps", func() bool { return j.step() >= 20 && j.identity(1) != "" })
		victim := j.identity(1)
		killed := j.kill(t, j.elruns[0].peer(t, 1).PID, syscall.SIGKILL)
		j.settle(t, peers-1)
		j.elruns[0].Expect(t, "was killed by signal 9 (killed), pid")
		j.speedUp(t)
		j.finish(t)
		if l, ok := measure(j.events(), []string{victim}, killed); ok {
			all = append(all, l)
		}
	}
	reportColumns(t, fmt.Sprintf("%d kills of peers with %d MiB", len(all), mb), all, []column[latency]{
		{"kill to next step", func(l latency) time.Duration { return l.net + 2*l.median }},
		{"  kill to view", func(l latency) time.Duration { return l.view }},
		{"  view to begin of step", func(l latency) time.Duration { return l.settle }},
		{"  step", func(l latency) time.Duration { return l.step }},
		{"median step before", func(l latency) time.Duration { return l.median }},
	})
}
