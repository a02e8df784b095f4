package netchaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

// lossyVariable is the environment variable with the number of steps and of elements of the role lossy.
const lossyVariable = "NETCHAOS_LOSSY"

// A correct program ends with status 0 over slow links that lose packets. Nothing that is late is taken for a mistake of the program.
// Where no packets are lost the data takes direct connections, however slow their handshakes are.
func TestLossyLinks(t *testing.T) {
	const hosts = 3
	for _, c := range []struct {
		name            string
		path            path
		steps, elements int
	}{
		{"100 ms", path{mbit: 100, delay: 100 * time.Millisecond, lose: 33}, pick(2, 5), pick(4<<10, 192<<10)},
		{"300 ms", path{mbit: 100, delay: 300 * time.Millisecond}, pick(2, 30), 1 << 10},
		{"150 ms", path{mbit: 100, delay: 150 * time.Millisecond, lose: 20}, 40, 1 << 10}, // 300 ms there and back
	} {
		if c.steps > 30 && !flagged[bool]("long") { // takes minutes
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			l := newFar(t, hosts, c.path)
			dir, j := folder(t), process.NewJob(t)
			events := func(host int) string { return filepath.Join(dir, fmt.Sprintf("events-%d.jsonl", host)) }
			env := []string{thenVariable + "=lossy", fmt.Sprintf("%s=%d,%d", lossyVariable, c.steps, c.elements)}
			begin := func(host int, args ...string) {
				args = append(append([]string{process.Elrun()}, args...), "-n", "1", "--min-peers", fmt.Sprint(hosts),
					"--events", events(host), process.Self(t))
				j.Start(t, on(t, l.hosts[host], env, args...))
			}
			begin(0, "--name", j.Name)
			var ticket string
			j.Elruns[0].Until(t, "a ticket", func() bool {
				ticket = (&job{Job: j, lab: l}).tryTicket(0)
				return ticket != ""
			})
			for host := 1; host < hosts; host++ {
				begin(host, "join", ticket)
			}
			for host, p := range j.Elruns {
				status := p.Wait(t)
				if c.path.lose == 0 && !hadDirect(t, events(host)) {
					t.Errorf("host %d had no direct connection", host)
				}
				t.Logf("elrun on host %d ended with status %d:\n%s", host, status, p.Out.String()+p.Err.String())
				if status != 0 || p.Says("mismatched calls") || p.Says("deadlock") {
					t.Errorf("host %d: status %d, want 0 and no mistake", host, status)
				}
			}
		})
	}
}

// hadDirect reports whether a peer had a direct connection, according to its event log.
func hadDirect(t *testing.T, log string) bool {
	t.Helper()
	return slices.ContainsFunc(process.NewLog(t, log).Read(t).Events, func(e event.Event) bool {
		p, ok := e.Body.(event.Path)
		return ok && p.Kind == "direct"
	})
}

// passRound is the role lossy. In each step every rank passes a vector to the next, waits for all others, and sums a vector with them.
func passRound(ctx context.Context) error {
	var steps, elements, step int64
	if _, err := fmt.Sscanf(os.Getenv(lossyVariable), "%d,%d", &steps, &elements); err != nil {
		return fmt.Errorf("%s: %w", lossyVariable, err)
	}
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	total := make([]float64, 1)
	for t := range g.Steps(ctx, elastic.Vectors(&step, total), steps) {
		begun := time.Now()
		sum, err := passOnce(ctx, t.Comm, int(elements))
		if err != nil {
			fmt.Println("step", step, "again:", err)
			continue
		}
		if n := float64(t.Comm.Size()); slices.ContainsFunc(sum, func(x float64) bool { return x != n*(n+1)/2 }) {
			return fmt.Errorf("step %d: a wrong sum", step)
		}
		step++
		total[0] += sum[0]
		fmt.Println("step", step, "took", time.Since(begun).Round(time.Millisecond))
	}
	return g.Err()
}

// passOnce takes a step of passRound and returns the sum.
func passOnce(ctx context.Context, c *collective.Comm, elements int) ([]float64, error) {
	mine, got := slices.Repeat([]float64{float64(c.Rank() + 1)}, elements), make([]float64, elements)
	if n := c.Size(); n > 1 && c.Rank() == 0 {
		if err := collective.Send(ctx, c, 1, 0, mine); err != nil {
			return nil, err
		}
		if err := collective.Recv(ctx, c, n-1, 0, got); err != nil {
			return nil, err
		}
	} else if n > 1 {
		if err := collective.Recv(ctx, c, c.Rank()-1, 0, got); err != nil {
			return nil, err
		}
		if err := collective.Send(ctx, c, (c.Rank()+1)%n, 0, got); err != nil {
			return nil, err
		}
	}
	if err := collective.Barrier(ctx, c); err != nil {
		return nil, err
	}
	return mine, collective.AllReduce(ctx, c, mine, mine, collective.Sum[float64])
}
