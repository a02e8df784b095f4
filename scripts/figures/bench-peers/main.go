// Command bench-peers compares the AllReduce of elrun, Open MPI and Gloo on this machine with each
// other and with the limit of the memory bandwidth:
//
//	make build figures
//	bin/bench-peers                 one host; writes docs/benchmarks/allreduce.md and the table in docs/benchmarks.md
//	bin/bench-peers --hosts         four hosts made of network namespaces (root)
//	bin/bench-peers --short         few calls; fails only on wrong numbers
//	bin/bench-peers --report        writes the report again, measures nothing
//
// Run the command in the root folder of the repository. make bench-peers runs it, after installing
// Open MPI and Gloo. One process measures all sides alternately, in several rounds. For each call
// every side does the same: it changes the input, waits in a barrier, makes one call, waits in a
// barrier, and checks every element. Only the call is timed, and its time is the time of the
// slowest rank. The result of a round is the median over its calls. Only the call of Gloo is in
// place.
//
// docs/benchmarks/figures.json has the measurements, from which the report is made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/internal/cores"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench-peers:", err)
		os.Exit(1)
	}
}

// options has the flags of the command line.
type options struct {
	short, hosts, report bool
	rounds, iters        int
	sizes, ranks, only   string
	docs                 string // folder that contains benchmarks.md and the folder benchmarks
	elrun, python        string
}

// run executes a command line.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 3 && args[0] == "bound" {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("bound: ranks %q: %w", args[1], err)
		}
		return bound(out, cores.Count(), n, args[2])
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	figures := filepath.Join(o.docs, "benchmarks", "figures.json")
	s, err := load(figures)
	if err != nil {
		return err
	}
	if o.report {
		return s.write(o.docs)
	}
	if o.short {
		return short(ctx, o, out)
	}
	r, clean, err := o.rig(ctx)
	if err != nil {
		return err
	}
	defer clean()
	s.Machine = thisMachine(o.python)
	if o.hosts {
		err = hostsRun{r, longRounds(o.rounds), s, out}.carryOut(ctx, split(o.only))
	} else {
		err = o.measureHost(ctx, r, s, out)
	}
	// An interrupted run keeps the rounds that it has measured.
	if err != nil && (ctx.Err() == nil || len(s.Records) == 0) {
		return err
	}
	if err := errors.Join(s.save(figures), s.write(o.docs)); err != nil {
		return err
	}
	_, err = io.WriteString(out, s.goals())
	return err
}

func parseOptions(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-peers", flag.ContinueOnError)
	f.BoolVar(&o.short, "short", false, "few calls, no report; fails only on wrong numbers")
	f.BoolVar(&o.hosts, "hosts", false, "hosts made of network namespaces, as root")
	f.BoolVar(&o.report, "report", false, "only write the report again")
	f.IntVar(&o.rounds, "rounds", 20, "rounds; what takes long has a turn in each fourth")
	f.IntVar(&o.iters, "iters", 0, "calls of each size (0: by size, as elrun bench)")
	f.StringVar(&o.sizes, "sizes", "4,1K,64K,256K,1M:16M,64M", "sizes; a colon parts those that are not run in one go")
	f.StringVar(&o.ranks, "ranks", "2,4,8", "numbers of ranks")
	f.StringVar(&o.only, "only", "", "sides, or parts of --hosts, separated by semicolons (default: all)")
	f.StringVar(&o.docs, "docs", "docs", "folder of the report")
	f.StringVar(&o.elrun, "elrun", "bin/elrun", "the program")
	f.StringVar(&o.python, "python", "/usr/bin/python3", "the Python that has torch")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.iters < 0 {
		return o, errors.New("usage: bench-peers [--short|--hosts|--report] [--rounds N] [--iters N] [--sizes LIST] [--ranks LIST] [--only NAMES]")
	}
	return o, nil
}

// rig finds the programs of all sides. It compiles the program for Open MPI into a temporary folder, which clean removes.
func (o options) rig(ctx context.Context) (r rig, clean func(), err error) {
	r = rig{python: o.python, iters: o.iters}
	if r.self, err = os.Executable(); err != nil {
		return r, nil, err
	}
	if r.elrun, err = filepath.Abs(o.elrun); err != nil {
		return r, nil, err
	}
	folder, err := os.MkdirTemp("", "bench-peers-")
	if err != nil {
		return r, nil, err
	}
	clean = func() { _ = os.RemoveAll(folder) }
	program := filepath.Join(folder, "openmpi")
	if exec.CommandContext(ctx, "mpicc", "-O3", "scripts/figures/bench-peers/peers/openmpi.c", "-o", program).Run() == nil {
		r.openmpi = program
	}
	if exec.CommandContext(ctx, r.python, "-c", "import torch.distributed as d; exit(not d.is_gloo_available())").Run() == nil {
		r.gloo, err = filepath.Abs("scripts/figures/bench-peers/peers/gloo.py")
	}
	return r, clean, err
}

// plan parses the lists in the flags.
func (o options) plan() (plan, error) {
	p := plan{rounds: o.rounds}
	for group := range strings.SplitSeq(o.sizes, ":") {
		sizes, err := bench.ParseSizes(group)
		if err != nil {
			return p, err
		}
		p.groups = append(p.groups, sizes)
	}
	for text := range strings.SplitSeq(o.ranks, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 || n > 16 { // float32 sums of more ranks would not be exact
			return p, fmt.Errorf("ranks %q: want 2 to 16", text)
		}
		p.ranks = append(p.ranks, n)
	}
	for _, s := range sides() {
		if only := split(o.only); len(only) == 0 || slices.Contains(only, s.name) {
			p.sides = append(p.sides, s)
		}
	}
	return p, nil
}

// split splits the names in --only.
func split(names string) []string {
	return strings.FieldsFunc(names, func(r rune) bool { return r == ';' })
}

// measureHost measures all sides on one host.
func (o options) measureHost(ctx context.Context, r rig, s *study, log io.Writer) error {
	p, err := o.plan()
	if err != nil {
		return err
	}
	s.drop(partHost)
	for _, one := range sides() {
		delete(s.Missing, one.name)
	}
	return p.carryOut(ctx, r, s, log)
}

// short runs every side once, with few calls. It ignores times. A wrong result is an error, and so is a missing result of elrun.
func short(ctx context.Context, o options, log io.Writer) error {
	o.rounds, o.iters, o.ranks, o.sizes = 1, 5, "2,4", "4,1K,1M,4M"
	r, clean, err := o.rig(ctx)
	if err != nil {
		return err
	}
	defer clean()
	s := &study{Missing: map[string]string{}}
	if err := o.measureHost(ctx, r, s, log); err != nil {
		return err
	}
	for name, why := range s.Missing {
		if strings.HasPrefix(name, "elrun") {
			return fmt.Errorf("%s did not run: %s", name, why)
		}
	}
	return nil
}
