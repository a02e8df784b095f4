// Actors is reinforcement learning as a program of services, tasks and peers: it learns which
// slot machine pays best. Actors are tasks that play. A queue, which is a service, passes their
// games to the learners, which are peers, and the learners' latest policy to the actors:
//
//	actors                         2 learners, 3 actors and the queue on this host
//	elrun -n 2 actors              the same
//	elrun -H a:2,b:2 actors        over hosts
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

// options are the flags.
type options struct {
	steps  int64
	actors int
}

func main() {
	var o options
	flag.Int64Var(&o.steps, "steps", 200, "learn for `N` steps")
	flag.IntVar(&o.actors, "actors", 3, "have `N` actors play")
	flag.Parse()
	os.Exit(program(o, os.Stdout.WriteString).Main(context.Background(), launch.Options{}))
}

// program returns the graph of services, tasks and peers. say prints the result.
func program(o options, say func(string) (int, error)) *launch.Program {
	p := launch.NewProgram("actors")
	q := newQueue()
	h := handles{
		put:    launch.Serve(p, "queue/put", q.put, launch.Group("actors")),
		take:   launch.Serve(p, "queue/take", q.take),
		policy: launch.Serve(p, "queue/policy", q.latest),
		learnt: launch.Serve(p, "queue/learnt", q.learnt),
	}
	p.Peers("learn", 2, func(ctx context.Context, g *elastic.Group) error {
		policy, err := h.learn(ctx, g, o.steps)
		if err != nil {
			return err
		}
		best, chance := policy.best()
		_, err = say(fmt.Sprintf("after %d steps: machine %d with probability %.2f\n", policy.Step, best, chance))
		return err
	})
	for i := range o.actors {
		name := fmt.Sprintf("actor-%d", i)
		play := func(ctx context.Context) error { return h.play(ctx, uint64(i)) }
		p.Task(name, play, launch.Restart(100, 100*time.Millisecond), launch.Group("actors"))
	}
	return p
}

// handles call the methods of the queue.
type handles struct {
	put    launch.Handle[Plays, bool]
	take   launch.Handle[int, Plays]
	policy launch.Handle[int64, Policy]
	learnt launch.Handle[Policy, bool]
}
