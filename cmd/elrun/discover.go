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

// discoverFlags configure the rendezvous of launchers that are started with the same command line.
type discoverFlags struct {
	Discover        string        `placeholder:"dns:NAME[:PORT]" help:"Join job --name at the addresses that a DNS name has, or start it there: all elruns of the job get the same command line. NAME@SERVER[:PORT] asks another DNS server."`
	KeyFile         string        `placeholder:"FILE" help:"File with the key that elruns with --discover share, of 32 characters or more."`
	StartWith       int           `default:"1" placeholder:"N" help:"How many elruns with --discover have to be there to start the job, best more than half of all. After a minute with fewer, those present start it (${default})."`
	ReadyPort       int           `placeholder:"PORT" help:"Accept connections at this TCP port, and close them at once, while peers of this elrun with --discover are in the job."`
	DiscoverTimeout time.Duration `default:"10m" placeholder:"D" help:"How long to look for the job before giving up with status 1 (${default})."`
}

const (
	// discoverPatience is how long launchers wait for the number of launchers in --start-with. It
	// is twice the time for which DNS servers may cache an answer without the latest launchers.
	discoverPatience = time.Minute
	// discoverGrace is the time that peers get to leave after a signal. It is shorter than the 60
	// s after which Kubernetes kills the pods of elrun k8s.
	discoverGrace = 50 * time.Second
	// cachedTicketValid is the validity of a ticket that a launcher gives to others. The launcher
	// gives the same ticket again until ticketReuse has passed, because the number of tickets of a
	// job is limited.
	cachedTicketValid = 10 * time.Minute
	ticketReuse       = 5 * time.Minute
	// finishPeriod is how long a launcher stays after the end of its job, to inform others of the
	// end.
	finishPeriod = 30 * time.Second
)

// errDiscover is the error of a launcher that did not find the job within --discover-timeout.
var errDiscover = errors.New("the job was not found in time")

// Validate implements kong's validation: its errors are usage errors.
func (d *discoverFlags) Validate() error {
	switch {
	case d.Discover == "" && d.KeyFile != "":
		return errors.New("--key-file needs --discover: add --discover, or leave --key-file out")
	case d.Discover != "" && d.KeyFile == "":
		return errors.New("--discover needs --key-file: give all launchers the same key")
	case d.ReadyPort < 0 || d.ReadyPort > 65535:
		return fmt.Errorf("--ready-port %d: want 1 to 65535", d.ReadyPort)
	case d.StartWith < 1:
		return fmt.Errorf("--start-with %d: want at least one", d.StartWith)
	case d.DiscoverTimeout <= 0:
		return fmt.Errorf("--discover-timeout %v: want more than 0", d.DiscoverTimeout)
	}
	return nil
}

// discovered finds the job by its rendezvous, then joins it, or starts it if there is none:
//
//  1. listen at the rendezvous port and look for the other launchers (findJob),
//  2. from now on answer them with tickets (ticketCache),
//  3. run the peers of this launcher,
//  4. inform the others of the end (finishRendezvous).
//
// The deferred calls run in reverse order: hide ends the goroutine of showReady, Wait waits for it,
// and the rendezvous port is closed last.
func (r *runCommand) discovered(ctx context.Context, t *terminal, change func(*launch.Options)) error {
	cfg, err := r.rendezvous(t)
	if err != nil {
		return fmt.Errorf("%w: %w", launch.ErrOptions, err)
	}
	p, err := rendezvous.Listen(ctx, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	found, err := r.findJob(ctx, t, p)
	// If the job has finished this launcher has nothing to do, and succeeds.
	if err != nil || found.Finished {
		return err
	}
	pass := &ticketCache{job: r.Name}
	p.Serve(pass.ticket)
	// hide closes the readiness port as soon as the peers have ended, before finishRendezvous waits
	// for other launchers: a pod without members must not count as ready.
	showing, hide := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { r.showReady(showing, t, cfg.Addr, pass) })
	defer work.Wait()
	defer hide()
	err = r.run(ctx, t, func(o *launch.Options) {
		change(o)
		o.Join, o.Ticket = found.Ticket != "", found.Ticket
		if o.Grace == 0 { // --grace, or a notice of preemption, may set another time
			o.Grace = discoverGrace
		}
		// Launchers on other hosts will join: listen beyond this host from the start.
		if o.Network.Listen == "auto" {
			o.Network.Listen = "all"
		}
	})
	hide()
	return r.finishRendezvous(ctx, t, p, err)
}

// rendezvous returns the configuration of the rendezvous.
func (r *runCommand) rendezvous(t *terminal) (rendezvous.Config, error) {
	name, err := rendezvous.ParseName(r.Discover)
	if err != nil {
		return rendezvous.Config{}, fmt.Errorf("--discover %w", err)
	}
	if r.Name == "" {
		return rendezvous.Config{}, errors.New("--discover needs --name: give all launchers the same name")
	}
	// The key is in a file, because other users of the host can see the command line.
	key, err := readFile(r.KeyFile)
	if err != nil {
		return rendezvous.Config{}, fmt.Errorf("--key-file: %w", err)
	}
	addr, _ := netip.ParseAddr(r.Listen) // invalid, and so unused, if --listen is not a single address
	return rendezvous.Config{Name: name, Key: string(key), Addr: addr, Need: r.StartWith, Patience: discoverPatience,
		Say: func(text string) {
			// Texts may have names from other hosts, so control characters are replaced.
			fmt.Fprintf(t.stderr, "elrun: looking for job %s: %s\n", r.Name, printable.Line(text))
		}}, nil
}

// findJob looks for the job until it is found, a signal comes or --discover-timeout has passed.
func (r *runCommand) findJob(ctx context.Context, t *terminal, p *rendezvous.Point) (rendezvous.Found, error) {
	seeking, release := t.interruptible(ctx)
	defer release()
	seeking, cancel := context.WithTimeoutCause(seeking, r.DiscoverTimeout, errDiscover)
	defer cancel()
	found, err := p.Seek(seeking)
	switch {
	case err != nil: // the caller prints it
	case found.Finished:
		fmt.Fprintf(t.stderr, "elrun: job %s has finished already\n", r.Name)
	case found.Ticket != "":
		fmt.Fprintf(t.stderr, "elrun: joining job %s by way of %s\n", r.Name, printable.Line(found.Host))
	default:
		fmt.Fprintf(t.stderr, "elrun: starting job %s\n", r.Name)
	}
	return found, err
}

// ticketCache caches the ticket that this launcher gives to other launchers. Many of them ask at
// the same time when a large job starts, and a job has a limited number of tickets. It is safe
// for concurrent use.
type ticketCache struct {
	job string // name of the job

	// mu guards the fields below.
	mu   sync.Mutex
	text string    // the cached ticket; "" for none
	made time.Time // when it was issued
}

// ticket returns a ticket for another launcher, or an error while no peer here is a member yet.
func (t *ticketCache) ticket(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != "" && time.Since(t.made) < ticketReuse {
		return t.text, nil
	}
	job, err := launch.Find(ctx, t.job)
	if err != nil {
		return "", errors.New("its peers are starting")
	}
	// The time is taken before the request, so that the ticket is never older than it seems.
	made := time.Now()
	ticket, err := job.Ticket(ctx, cachedTicketValid)
	if err == nil {
		t.text, t.made = ticket.Text, made
	}
	return ticket.Text, err
}

// finishRendezvous informs other launchers of the job's end. If err says that this launcher could
// not join, it asks the other launchers whether the job has finished. If the job has finished the
// result is nil.
func (r *runCommand) finishRendezvous(ctx context.Context, t *terminal, p *rendezvous.Point, err error) error {
	// After a signal or a wrong flag the outcome does not depend on whether the job has finished.
	if err != nil && isPermanent(err) {
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
		fmt.Fprintf(t.stderr, "elrun: job %s has finished without the peers of this elrun\n", r.Name)
		return nil
	}
	return err
}
