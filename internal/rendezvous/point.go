package rendezvous

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/internal/sharedkey"
)

// Config has the address of a Point and the conditions for the start of the job. Name and Key are
// required.
type Config struct {
	Name Name
	// Key is the content of the key file. White space around the key is ignored.
	Key  string
	Addr netip.Addr // address to listen on and to connect from; zero for all
	Host string     // name of this launcher, by which launchers are ordered; "" for the host's name
	// Need is the number of launchers, this one included, that must be present to start the job. It
	// must be more than half of all launchers of the job, so that two jobs never start. After the
	// time Patience fewer launchers start the job as well.
	Need     int
	Patience time.Duration
	// Say is called with the reason why the job is not found yet, whenever the reason changes. It
	// may be nil.
	Say func(text string)
}

const (
	// askPeriod is the time limit for an answer, and ticketPeriod for an answer with a ticket.
	askPeriod    = 2 * time.Second
	ticketPeriod = 10 * time.Second
	// maxConns bounds the concurrent connections. Further connections wait.
	maxConns = 64
	// recentPeriod is how long a launcher that is not in the DNS counts as present after its last
	// question.
	recentPeriod = 10 * time.Second
)

// Point is a launcher in the rendezvous. It is safe for concurrent use.
type Point struct {
	cfg      Config
	tls      *tls.Config
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	work     sync.WaitGroup

	// mu guards the fields below.
	mu            sync.Mutex
	ballot        ballot                                // stage of this launcher and its grant to a candidate
	ticket        func(context.Context) (string, error) // makes a ticket; nil until Serve
	lastQuestions map[netip.Addr]time.Time              // time of the latest question, by address
	connSlots     chan struct{}                         // a semaphore with a slot for each connection
}

// errForeign reports that the other side has another key, and so belongs to another job. Such a
// launcher does not count as present, but like an unreachable address it prevents the start of the
// job.
var errForeign = errors.New("it has another key, or is not elrun")

// Listen starts a Point that answers the questions of others, at the port of the name. ctx limits
// the start only. Listen fails if the port is in use. End the Point with Close.
func Listen(ctx context.Context, cfg Config) (*Point, error) {
	secure, err := sharedkey.TLS([]byte(strings.TrimSpace(cfg.Key)), "elrun rendezvous", errForeign)
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
		cfg.Host, _ = os.Hostname() // with an error the name is empty, and the ID gives the order
	}
	if cfg.Say == nil {
		cfg.Say = func(string) {}
	}
	// The random ID distinguishes launchers on hosts with the same name.
	p := &Point{cfg: cfg, tls: secure, listener: tls.NewListener(l, secure), lastQuestions: make(map[netip.Addr]time.Time),
		connSlots: make(chan struct{}, maxConns), ballot: ballot{self: candidate{cfg.Host, rand.Text()}, stage: seeking}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p, nil
}

// Close stops answering and waits for all goroutines of the Point.
func (p *Point) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.work.Wait()
	return err
}

// accept accepts connections and serves each in a goroutine.
func (p *Point) accept() {
	for p.ctx.Err() == nil {
		conn, err := p.listener.Accept()
		if err != nil {
			_ = pause.For(p.ctx, 100*time.Millisecond) // such as too many open files: retry
			continue
		}
		// With all slots taken, accept stops; further connections wait in the kernel's queue.
		p.connSlots <- struct{}{}
		p.work.Go(func() {
			defer func() { <-p.connSlots }()
			p.serveConn(conn)
		})
	}
}

// serveConn answers one question. A connection without the key fails in the handshake.
func (p *Point) serveConn(conn net.Conn) {
	defer conn.Close()
	// Close of the Point ends a pending read or write.
	stop := context.AfterFunc(p.ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(askPeriod))
	var q question
	if read(conn, &q) != nil {
		return
	}
	// A ticket takes longer than any other answer.
	ctx, cancel := context.WithTimeout(p.ctx, ticketPeriod)
	defer cancel()
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return
	}
	a := p.answer(ctx, q, from.Addr().Unmap())
	_ = conn.SetDeadline(time.Now().Add(askPeriod))
	_ = json.NewEncoder(conn).Encode(a) // an error means that the connection is broken; the asker asks again if it still runs
}

// self returns this launcher as a candidate.
func (p *Point) self() candidate { return p.ballot.self } // never changes

// answer returns the answer to a question from an address.
func (p *Point) answer(ctx context.Context, q question, from netip.Addr) answer {
	now := time.Now()
	p.mu.Lock()
	// The DNS may list an address of this launcher, so that it asks itself.
	if q.From != p.self() {
		p.lastQuestions[from] = now
	}
	granted := q.Ask == askClaim && p.ballot.grant(q.From, from, now)
	a, ticket := answer{From: p.self(), Stage: p.ballot.stage, Granted: granted}, p.ticket
	p.mu.Unlock()
	switch {
	case q.Ask != askTicket:
	case ticket == nil:
		a.Why = "it has not joined the job yet"
	default:
		text, err := ticket(ctx)
		if a.Ticket = text; err != nil {
			a.Why = err.Error()
		}
	}
	return a
}

// Serve makes this launcher give tickets of its job to others. ticket makes a ticket; it must be
// safe for concurrent use.
func (p *Point) Serve(ticket func(ctx context.Context) (string, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticket = ticket
}

// setStage sets the stage of this launcher.
func (p *Point) setStage(s stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ballot.stage = s
}
