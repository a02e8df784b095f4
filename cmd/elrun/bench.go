package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

// benchFlags describe a measurement. bench passes them to its peers.
type benchFlags struct {
	Collective string `arg:"" help:"allreduce, reducescatter, allgather, broadcast, reduce, gather, scatter, alltoall, scan, exscan, barrier or sendrecv."`
	Sizes      string `default:"4,1K,64K,1M,16M,64M" placeholder:"LIST" help:"Bytes, with K, M, G (${default})."`
	DType      string `name:"dtype" default:"float32" help:"Element type (${default})."`
	Op         string `default:"sum" help:"Operation (${default})."`
	Algorithm  string `default:"auto" help:"Algorithm (${default})."`
	Iters      int    `placeholder:"N" help:"Timed calls of each size (default: 10 to 200, by size)."`
	InPlace    bool   `help:"Use one vector as source and destination."`
	Alloc      bool   `help:"Take the vectors of reductions from memory that the peers of a host share."`
	Tune       bool   `help:"Time each algorithm by turns, and show how far the choice of auto is from the best."`
	JSON       bool   `name:"json" help:"One JSON object a size."`
	Transport  string `enum:"auto,shm,unix,direct,p2p" default:"auto" help:"How data travels: auto (the best of these), shm (shared memory), unix (Unix sockets), direct (TCP connections of the peers) or p2p (libp2p streams)."`
	Encrypt    string `enum:"auto,always,never" default:"auto" help:"Encrypt direct connections: auto, always or never."`
	Links      bool   `help:"First measure the link from each peer to the next, and show for each size the fraction of the speed that these links allow to a ring (default with hosts)."`
	Group      int    `placeholder:"N" help:"Wait until N peers are there: they may have launchers of their own, which join one after the other."`
}

// Validate implements kong's validation: its errors are usage errors.
func (b *benchFlags) Validate() error {
	_, err := b.config()
	return err
}

// config converts the flags.
func (b *benchFlags) config() (bench.Config, error) {
	cfg := bench.Config{Collective: b.Collective, Op: b.Op, Iters: b.Iters, InPlace: b.InPlace, Alloc: b.Alloc}
	if b.Collective == "" {
		return cfg, fmt.Errorf("no collective given (one of %v)", bench.Collectives())
	}
	if !slices.Contains(bench.Collectives(), b.Collective) {
		return cfg, fmt.Errorf("unknown collective %q (one of %v)", b.Collective, bench.Collectives())
	}
	if b.Iters < 0 {
		return cfg, fmt.Errorf("--iters %d: want a positive number", b.Iters)
	}
	var err error
	if cfg.Bytes, err = bench.ParseSizes(b.Sizes); err != nil {
		return cfg, err
	}
	if cfg.Type, err = dtype.ParseType(b.DType); err != nil {
		return cfg, err
	}
	cfg.Algorithm, err = collective.ParseAlgorithm(b.Algorithm)
	return cfg, err
}

// args returns the flags as the arguments of a bench-peer.
func (b *benchFlags) args() []string {
	// Every flag is passed, even if it has its default value, so that the defaults of bench apply
	// at all peers.
	return []string{"bench-peer", "--sizes=" + b.Sizes, "--dtype=" + b.DType, "--op=" + b.Op,
		"--algorithm=" + b.Algorithm, "--iters=" + strconv.Itoa(b.Iters), "--in-place=" + strconv.FormatBool(b.InPlace),
		"--alloc=" + strconv.FormatBool(b.Alloc), "--tune=" + strconv.FormatBool(b.Tune),
		"--json=" + strconv.FormatBool(b.JSON), "--links=" + strconv.FormatBool(b.Links), "--group=" + strconv.Itoa(b.Group), "--transport=" + b.Transport,
		"--encrypt=" + b.Encrypt, b.Collective}
}

// benchCommand is the command elrun bench. It runs an ordinary job whose program is elrun itself,
// with the hidden command bench-peer.
type benchCommand struct {
	benchFlags
	sshFlags
	schedulerFlags
	Peers  peerCount `name:"np" short:"n" placeholder:"N" help:"Peers on this host (default: number of cores), or on all hosts of -H."`
	Name   string    `placeholder:"JOB" help:"Name of the job (default: made from the program's name)."`
	Ticket string    `placeholder:"TICKET" help:"Measure together with the peers of another elrun bench, which has the same flags and waits for --group peers. - reads the ticket from standard input and @FILE from a file."`
}

// Run starts the peers. The peer with rank 0 prints the results.
func (b *benchCommand) Run(ctx context.Context, t *terminal) error {
	// The peers run the executable of this process, so that they have the same version.
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program of the peers: %w", err)
	}
	hosts, srun, err := b.chooseHosts(t, &b.sshFlags, &b.Peers)
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: %v\n", err)
		return exitStatus(statusUsage)
	}
	o := launch.Options{Program: self, Self: true, Peers: b.Peers.orCores(), Job: b.Name,
		Network: launch.Network{Listen: "local", Transport: b.Transport, Encrypt: b.Encrypt},
		Output:  launch.Output{Stdout: t.stdout, Stderr: t.stderr, Plain: true}, Signals: t.signals}
	switch {
	case len(hosts) > 0:
		(&hostFlags{sshFlags: b.sshFlags}).add(&o, hosts, nil, int(b.Peers))
		o.Remote.Srun, o.Remote.Dir, o.Network.Listen, b.Links = srun, "", "auto", true // bench-peer needs no working folder
	// Peers of other launchers take part in the job. They could not connect to a peer that listens
	// on this host only, and their links may be slow.
	case b.Ticket != "" || b.Group > 0: // peers of other launchers
		o.Network.Listen, b.Links = "auto", true
	}
	if b.Ticket != "" {
		reading, release := t.interruptible(ctx)
		o.Ticket, err = readTicket(reading, b.Ticket, t.stdin)
		release()
		if err != nil {
			return err
		}
		o.Join = true
	}
	o.Args = b.args()
	return finish(launch.Run(ctx, o))
}

// benchPeerCommand is the hidden command bench-peer: one peer of elrun bench.
type benchPeerCommand struct{ benchFlags }

// Run joins the job and measures together with the other peers. The whole measurement runs in one
// session. If a peer is lost, all others end with the error of the call, because later figures
// would be for another number of ranks.
func (b *benchPeerCommand) Run(ctx context.Context, t *terminal) error {
	cfg, err := b.config()
	if err != nil {
		return err
	}
	ctx, release := t.interruptible(ctx) // a peer cannot leave in the middle of a measurement
	defer release()
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	s, err := b.awaitSession(ctx, g)
	if err != nil {
		return err
	}
	if err := b.measure(ctx, t, s, cfg); err != nil {
		return err
	}
	// Wait for the peers that are still in the last call, which would fail if this peer exited
	// earlier.
	if err := collective.Barrier(ctx, s.Comm); err != nil {
		return err
	}
	return g.Close()
}

// awaitSession returns the session in which to measure. While peers join, views follow one another,
// and a member may skip some views. A barrier that succeeds proves that all members of the view are
// in this session.
func (b *benchPeerCommand) awaitSession(ctx context.Context, g *elastic.Group) (*elastic.Session, error) {
	s, err := g.Sessions().Next(ctx, 0)
	for b.Group > 0 && err == nil {
		if len(s.View.Members) >= b.Group && collective.Barrier(ctx, s.Comm) == nil {
			break
		}
		s, err = g.Sessions().Next(ctx, s.View.Epoch)
	}
	return s, err
}

// measure measures all sizes. Rank 0 prints a result for each.
func (b *benchPeerCommand) measure(ctx context.Context, t *terminal, s *elastic.Session, cfg bench.Config) error {
	// All ranks measure the links, because the measurement needs collective calls. Only at rank 0
	// is the result not 0.
	link, err := b.slowest(ctx, t, s)
	if err != nil {
		return err
	}
	report := func(bench.Result) error { return nil }
	if s.Rank == 0 {
		if report, err = b.reporter(t, s); err != nil {
			return err
		}
	}
	run := bench.Run
	if b.Tune {
		run = bench.Tune
	}
	return run(ctx, s.Comm, cfg, func(r bench.Result) error {
		if link > 0 {
			r.Link, r.OfBound = link, r.BusBW/link
		}
		return report(r)
	})
}

// slowest returns the speed of the slowest link in 1e9 bytes/s. It returns 0 if links are not
// measured, and at all ranks except 0. Rank 0 prints the speeds of all links.
func (b *benchPeerCommand) slowest(ctx context.Context, t *terminal, s *elastic.Session) (float64, error) {
	if !b.Links {
		return 0, nil
	}
	links, err := bench.Links(ctx, s.Comm)
	// All ranks know the speeds; only rank 0 prints and uses them.
	if err != nil || len(links) == 0 || s.Rank != 0 {
		return 0, err
	}
	if !b.JSON {
		words := make([]string, len(links))
		for i, speed := range links {
			words[i] = fmt.Sprintf("%d-%d %.3f", i, (i+1)%len(links), speed)
		}
		_, err = fmt.Fprintf(t.stdout, "links from rank to rank: %s GB/s\n", strings.Join(words, ", "))
	}
	return slices.Min(links), err
}

// reporter prints the header of the table, and returns the function that prints a result.
func (b *benchPeerCommand) reporter(t *terminal, s *elastic.Session) (func(bench.Result) error, error) {
	// Package bench does not know how the data travels, so the result gets the value of the flag.
	transport := b.Transport
	if b.JSON {
		e := json.NewEncoder(t.stdout)
		return func(r bench.Result) error {
			r.Transport = transport
			return e.Encode(r)
		}, nil
	}
	if _, err := fmt.Fprintf(t.stdout, "%s, %d peers, %s, transport %s; bandwidths in GB/s\n",
		b.Collective, len(s.View.Members), b.Op, transport); err != nil {
		return nil, err
	}
	if b.Tune {
		cost := s.Comm.Cost() // measured at the beginning of the session
		_, err := fmt.Fprintf(t.stdout, "a message takes %.1f us and %.3f ns a byte, reducing %.3f ns a byte; * marks the choice of auto\n",
			cost.Alpha*1e6, cost.Beta*1e9, cost.Gamma*1e9)
		if err != nil {
			return nil, err
		}
	}
	if err := bench.WriteHeader(t.stdout); err != nil {
		return nil, err
	}
	return func(r bench.Result) error { return r.WriteRow(t.stdout) }, nil
}
