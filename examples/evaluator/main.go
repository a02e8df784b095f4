// Evaluator trains a classifier while a service evaluates the model on a test set. No step waits
// for the service, and training continues if the service dies.
//
//	evaluator                              3 peers and the evaluator on this host
//	elrun -n 3 evaluator                   the same
//	elrun -H a:2,b:2 evaluator             over hosts
//
// The images are synthetic, of ten kinds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/elrun/elrun/launch"
)

// options are the flags.
type options struct {
	steps int64
	every int64
	pace  time.Duration
}

func main() {
	var o options
	flag.Int64Var(&o.steps, "steps", 600, "train `N` steps")
	flag.Int64Var(&o.every, "every", 20, "have the model scored every `N` steps")
	flag.DurationVar(&o.pace, "pace", 0, "`time` that a microbatch takes at least, for tests")
	flag.Parse()
	os.Exit(program(o).Main(context.Background(), launch.Options{}))
}

// program returns the graph: peers that train, and a service that evaluates.
func program(o options) *launch.Program {
	p := launch.NewProgram("evaluator")
	evaluate := launch.Serve(p, "eval", new(evaluator).score, launch.Restart(100, 10*time.Millisecond))
	l := learner{options: o, evaluate: evaluate}
	p.Peers("train", 3, l.train)
	return p
}

// say prints a line.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
