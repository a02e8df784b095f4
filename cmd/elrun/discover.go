package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/internal/rendezvous"
	"github.com/elrun/elrun/launch"
)

// discoverFlags say how elruns that were started with one command line find each other.
type discoverFlags struct {
	Discover        string        `placeholder:"dns:NAME[:PORT]" help:"Join job --name at the addresses that a DNS name has, or start it there: all elruns of the job get the same command line. NAME@SERVER[:PORT] asks another DNS server."`
	KeyFile         string        `placeholder:"FILE" help:"File with the key that elruns with --discover share, of 32 characters or more."`
	StartWith       int           `default:"1" placeholder:"N" help:"How many elruns with --discover have to be there to start the job, best more than half of all. Where fewer are there for a minute they start it (${default})."`
	ReadyPort       int           `placeholder:"PORT" help:"Accept connections at this TCP port, and close them at once, while peers of this elrun with --discover are in the job."`
	DiscoverTimeout time.Duration `default:"10m" placeholder:"D" help:"How long to look for the job before giving up with status 1 (${default})."`
}

const (
	// discoverPatience is how long launchers wait for those that --start-with counts. DNS
	// servers keep an answer for half of that.
	discoverPatience = time.Minute
	// discoverGrace is how long peers may take to leave, less than the engine gives.
	discoverGrace = 50 * time.Second
	// passTicket is how long a ticket holds that one launcher gives others, and passAgain for
	// how long it gives the same one: a job has room for a bounded number of tickets.
	passTicket = 10 * time.Minute
	passAgain  = 5 * time.Minute
	// finishPeriod is how long a launcher stays at the end to tell others of it.
	finishPeriod = 30 * time.Second
)

// errDiscover is the cause when the job was not found in time.
var errDiscover = errors.New("the job was not found in time")

// Validate is called by kong; its errors are usage errors.
func (f *discoverFlags) Validate() error {
	switch {
	case f.Discover == "" && f.KeyFile != "":
		return errors.New("--key-file: it goes with --discover")
	case f.Discover != "" && f.KeyFile == "":
		return errors.New("--discover: it needs --key-file, with the same key for all")
	case f.ReadyPort < 0 || f.ReadyPort > 65535:
		return fmt.Errorf("--ready-port %d: want a port", f.ReadyPort)
	case f.StartWith < 1:
		return fmt.Errorf("--start-with %d: want at least one", f.StartWith)
	case f.DiscoverTimeout <= 0:
		return fmt.Errorf("--discover-timeout %v: want more than 0", f.DiscoverTimeout)
	}
	return nil
}

// discovered runs a job that is looked for first.
func (c *runCommand) discovered(ctx context.Context, t *terminal, change func(*launch.Options)) error {
	cfg, err := c.rendezvous(t)
	if err != nil {
		return fmt.Errorf("%w: %w", launch.ErrOptions, err)
	}
	p, err := rendezvous.Listen(ctx, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	found, err := c.seek(ctx, t, p)
	if err != nil || found.Finished {
		return err
	}
	pass := &pass{job: c.Name}
	p.Serve(pass.ticket)
	showing, hide := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { c.showReady(showing, t, cfg.Addr, pass) })
	defer work.Wait()
	defer hide()
	err = c.run(ctx, t, func(o *launch.Options) {
		change(o)
		o.Join, o.Ticket = found.Ticket != "", found.Ticket
		if o.Grace == 0 { // no notice of preemption gives less
			o.Grace = discoverGrace
		}
		if o.Listen == "auto" {
			o.Listen = "all"
		}
	})
	hide()
	return c.settle(ctx, t, p, err)
}

// rendezvous makes its configuration of the flags.
func (c *runCommand) rendezvous(t *terminal) (rendezvous.Config, error) {
	name, err := rendezvous.ParseName(c.Discover)
	if err != nil {
		return rendezvous.Config{}, fmt.Errorf("--discover %w", err)
	}
	if c.Name == "" {
		return rendezvous.Config{}, errors.New("--discover: it needs --name, the same for all")
	}
	key, err := readFile(c.KeyFile)
	if err != nil {
		return rendezvous.Config{}, fmt.Errorf("--key-file: %w", err)
	}
	addr, _ := netip.ParseAddr(c.Listen) // in other forms it does not say where everything listens
	return rendezvous.Config{Name: name, Key: string(key), Addr: addr, Need: c.StartWith, Patience: discoverPatience,
		Say: func(text string) {
			fmt.Fprintf(t.stderr, "elrun: looking for job %s: %s\n", c.Name, printable.Line(text))
		}}, nil
}

// seek looks for the job until a signal or the end of time.
func (c *runCommand) seek(ctx context.Context, t *terminal, p *rendezvous.Point) (rendezvous.Found, error) {
	seeking, release := t.interruptible(ctx)
	defer release()
	seeking, cancel := context.WithTimeoutCause(seeking, c.DiscoverTimeout, errDiscover)
	defer cancel()
	found, err := p.Seek(seeking)
	switch {
	case err != nil:
	case found.Finished:
		fmt.Fprintf(t.stderr, "elrun: job %s has finished already\n", c.Name)
	case found.Ticket != "":
		fmt.Fprintf(t.stderr, "elrun: joining job %s by way of %s\n", c.Name, printable.Line(found.Host))
	default:
		fmt.Fprintf(t.stderr, "elrun: starting job %s\n", c.Name)
	}
	return found, err
}

// pass is the ticket that this launcher gives others.
type pass struct {
	job string

	mu   sync.Mutex
	text string
	made time.Time
}

// ticket returns a ticket for another launcher.
func (p *pass) ticket(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text != "" && time.Since(p.made) < passAgain {
		return p.text, nil
	}
	job, err := launch.Find(ctx, p.job)
	if err != nil {
		return "", errors.New("its peers are starting")
	}
	made := time.Now()
	ticket, err := job.Ticket(ctx, passTicket)
	if err == nil {
		p.text, p.made = ticket.Text, made
	}
	return ticket.Text, err
}

// settle tells others of the job's end, and learns from them whether a job that could not be
// joined any more has come to one.
func (c *runCommand) settle(ctx context.Context, t *terminal, p *rendezvous.Point, err error) error {
	if err != nil && hopeless(err) {
		return err
	}
	ending, release := t.interruptible(ctx)
	defer release()
	ending, cancel := context.WithTimeout(ending, finishPeriod)
	defer cancel()
	if err == nil {
		p.Finish(ending)
		return nil
	}
	if p.Finished(ending) {
		report(t.stderr, err)
		fmt.Fprintf(t.stderr, "elrun: job %s has finished without the peers of this elrun\n", c.Name)
		return nil
	}
	return err
}
