package rendezvous

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"
)

// Config says where a Point listens and when it starts the job. Name and Key are required.
type Config struct {
	Name Name
	Key  string     // as it stands in the file; white space around it does not count
	Addr netip.Addr // to listen at and to connect from; the zero value for all
	Host string     // the name of this launcher, by which the lowest is found; "" for the host's
	// Need is how many launchers have to be there, this one included, for one to start the job:
	// more than half of those that will be. Where fewer are there for Patience, they start it.
	Need     int
	Patience time.Duration
	// Say is told why the job is not found yet, when that changes; nil for nobody.
	Say func(text string)
}

const (
	// askPeriod is how long one launcher may take to answer, ticketPeriod to make a ticket.
	askPeriod    = 2 * time.Second
	ticketPeriod = 10 * time.Second
	// maxVisitors is how many connections are served at once. Further ones wait.
	maxVisitors = 64
	// recent is how long somebody counts who has asked, but is not in the DNS.
	recent = 10 * time.Second
)

// Point is one launcher at the rendezvous. Its methods may be called from any goroutine.
type Point struct {
	cfg      Config
	tls      *tls.Config
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mu      sync.Mutex
	ballot  ballot
	ticket  func(context.Context) (string, error)
	visits  map[netip.Addr]time.Time // who has asked, and when
	visitor chan struct{}            // a slot for each
}

// Listen starts to answer others.
func Listen(ctx context.Context, cfg Config) (*Point, error) {
	secure, err := newTLS(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("rendezvous: %w", err)
	}
	host := ""
	if cfg.Addr.IsValid() {
		host = cfg.Addr.String()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(cfg.Name.Port)))
	if err != nil {
		return nil, fmt.Errorf("rendezvous: %w", err)
	}
	if cfg.Host == "" {
		cfg.Host, _ = os.Hostname() // the ID orders where there is none
	}
	if cfg.Say == nil {
		cfg.Say = func(string) {}
	}
	p := &Point{cfg: cfg, tls: secure, listener: tls.NewListener(l, secure), visits: make(map[netip.Addr]time.Time),
		visitor: make(chan struct{}, maxVisitors), ballot: ballot{self: candidate{cfg.Host, rand.Text()}, stage: seeking}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p, nil
}

// Close stops answering and waits for all that this Point has begun.
func (p *Point) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.work.Wait()
	return err
}

// accept serves each connection in a goroutine.
func (p *Point) accept() {
	for p.ctx.Err() == nil {
		conn, err := p.listener.Accept()
		if err != nil {
			p.pause(p.ctx, 100*time.Millisecond) // too many open files
			continue
		}
		p.visitor <- struct{}{}
		p.work.Go(func() {
			defer func() { <-p.visitor }()
			p.visit(conn)
		})
	}
}

// visit answers one question. A stranger ends in the handshake.
func (p *Point) visit(conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(p.ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(askPeriod))
	var q question
	if read(conn, &q) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, ticketPeriod)
	defer cancel()
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return
	}
	a := p.answer(ctx, q, from.Addr().Unmap())
	_ = conn.SetDeadline(time.Now().Add(askPeriod))
	_ = json.NewEncoder(conn).Encode(a) // who has gone asks again
}

// self is this launcher.
func (p *Point) self() candidate { return p.ballot.self } // set once

// answer is what a question gets that comes from an address.
func (p *Point) answer(ctx context.Context, q question, from netip.Addr) answer {
	now := time.Now()
	p.mu.Lock()
	if q.From != p.self() {
		p.visits[from] = now
	}
	granted := q.Ask == askClaim && p.ballot.grant(q.From, from, now)
	a, ticket := answer{From: p.self(), Stage: p.ballot.stage, Granted: granted}, p.ticket
	p.mu.Unlock()
	switch {
	case q.Ask != askTicket:
	case ticket == nil:
		a.Why = "it is not in the job yet"
	default:
		text, err := ticket(ctx)
		if a.Ticket = text; err != nil {
			a.Why = err.Error()
		}
	}
	return a
}

// Serve has this launcher hand out tickets of its job, as ticket makes them.
func (p *Point) Serve(ticket func(ctx context.Context) (string, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticket = ticket
}

// enter sets the stage.
func (p *Point) enter(s stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ballot.stage = s
}

// pause waits for d or for the end of ctx.
func (p *Point) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
