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
	"slices"
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
		a.Ticket = text
		if err != nil {
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

// Found is the result of Seek.
type Found struct {
	Ticket   string // a ticket of the running job; "" if this launcher has to start the job
	Host     string // name of the launcher that made the ticket
	Finished bool   // the job has finished: there is nothing to do
}

const (
	// firstPause is the first pause between two surveys; it doubles up to maxPause. Hosts often
	// start together, so the first surveys follow each other quickly.
	firstPause = 100 * time.Millisecond
	maxPause   = time.Second
	// maxReasons bounds the number of different reasons that the user gets.
	maxReasons = 100
)

// Seek looks for the job until the job is found or this launcher has to start it. In the second
// case the other launchers assume from then on that this launcher has the job. If the job then
// fails to start, call Close: a launcher that does not listen does not count as having the job.
func (p *Point) Seek(ctx context.Context) (Found, error) {
	begun, period, said := time.Now(), firstPause, make(map[string]bool)
	for {
		s := p.survey(ctx)
		do, why := rules{p.cfg.Need, p.cfg.Patience}.decide(p.self(), s, time.Since(begun))
		var f Found
		ok := do == end
		switch do {
		case end:
			f.Finished = true
		case join:
			f, ok, why = p.join(ctx, s.withJob())
		case claim:
			ok, why = p.claim(ctx, s.answers)
		}
		if ctx.Err() != nil {
			return Found{}, fmt.Errorf("rendezvous: %w; %s", context.Cause(ctx), why)
		}
		if ok {
			return f, nil
		}
		// The user gets each reason once: a failing DNS server, for example, fails in one way at one
		// survey and in another at the next.
		if why = withoutSources(why); !said[why] && len(said) < maxReasons {
			p.cfg.Say(why)
			said[why] = true
		}
		_ = pause.For(ctx, period)
		period = min(2*period, maxPause)
	}
}

// withoutSources returns an error text without the source addresses of connections, as in read udp
// 10.0.0.1:41234->10.0.0.53:53. Their ports differ at each attempt.
func withoutSources(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if _, to, ok := strings.Cut(w, "->"); ok {
			words[i] = to
		}
	}
	return strings.Join(words, " ")
}

// join asks the launchers that have the job for a ticket, until one gives it. If none does, ok is
// false, and why is the reason.
func (p *Point) join(ctx context.Context, having []addressedAnswer) (f Found, ok bool, why string) {
	for _, v := range having {
		a, err := p.ask(ctx, v.addr, askTicket, ticketPeriod)
		switch {
		case err != nil:
			why = fmt.Sprintf("%s runs the job but gave no ticket: %v", v.From.Name, err)
		case a.Ticket == "":
			why = fmt.Sprintf("%s runs the job but gives no ticket yet: %s", v.From.Name, a.Why)
		default:
			p.setStage(running)
			return Found{Ticket: a.Ticket, Host: v.From.Name}, true, ""
		}
	}
	return Found{}, false, why
}

// claim asks this launcher and all other launchers for the grant to start the job. A launcher
// grants only one claim at a time, its own included. So if two launchers claim at the same time,
// and at least one launcher is asked by both, at most one of the two gets all grants.
func (p *Point) claim(ctx context.Context, others []addressedAnswer) (ok bool, why string) {
	// First get the grant of this launcher itself: from here it grants no other claim.
	begun := time.Now()
	p.mu.Lock()
	granted := p.ballot.grant(p.self(), netip.Addr{}, begun)
	p.mu.Unlock()
	if !granted {
		return false, "another launcher is about to start the job"
	}
	// Then ask all other launchers for their grants, concurrently.
	refusals := make([]error, len(others))
	var work sync.WaitGroup
	for i, v := range others {
		work.Go(func() {
			a, err := p.ask(ctx, v.addr, askClaim, askPeriod)
			if err == nil && !a.Granted {
				err = errors.New("another launcher may start it")
			}
			refusals[i] = err
		})
	}
	work.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	// A single refusal is enough to withdraw the claim.
	refused := slices.IndexFunc(refusals, func(err error) bool { return err != nil })
	switch {
	case refused >= 0:
		why = fmt.Sprintf("%s refused this launcher's request to start the job: %v", others[refused].From.Name, refusals[refused])
	case time.Since(begun) > lease/2: // this host was suspended, for example
		why = "the other launchers took too long to let this launcher start the job"
	}
	if why != "" {
		p.ballot.withdraw()
		return false, why
	}
	p.ballot.stage = running
	return true, ""
}

// survey asks all addresses of the name for the stage of their launchers. It also asks the
// launchers that have asked recently or have the grant, because the DNS may omit them. It makes a
// connection to each address, all at the same time, and takes at most about askPeriod after the
// lookup. The answers are sorted, so that the decision does not depend on the order in which they
// arrive.
func (p *Point) survey(ctx context.Context) survey {
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, ticketPeriod)
	defer cancel()
	addrs, err := p.cfg.Name.lookup(within)
	s := survey{err: err}
	addrs = append(addrs, p.recentAddrs(begun)...)
	slices.SortFunc(addrs, netip.Addr.Compare)
	var work sync.WaitGroup
	var mu sync.Mutex
	for _, addr := range slices.Compact(addrs) {
		work.Go(func() {
			a, err := p.ask(ctx, addr, askStage, askPeriod)
			mu.Lock()
			defer mu.Unlock()
			s.add(addressedAnswer{a, addr}, err, p.self())
		})
	}
	work.Wait()
	slices.SortFunc(s.answers, func(a, b addressedAnswer) int { return a.From.compare(b.From) })
	slices.SortFunc(s.unreachable, func(a, b unreachableAddr) int { return a.addr.Compare(b.addr) })
	p.mu.Lock()
	p.ballot.revise(s, begun)
	p.mu.Unlock()
	return s
}

// recentAddrs returns the addresses of launchers that have asked recently or have the grant.
func (p *Point) recentAddrs(now time.Time) (out []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, at := range p.lastQuestions {
		if now.Sub(at) > recentPeriod {
			delete(p.lastQuestions, addr)
			continue
		}
		out = append(out, addr)
	}
	if p.ballot.at.IsValid() {
		out = append(out, p.ballot.at)
	}
	return out
}

// ask sends one question to the launcher at an address and returns its answer, within patience.
func (p *Point) ask(ctx context.Context, addr netip.Addr, what string, patience time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Connect from the address on which this launcher listens, so that the other launchers record
	// an address at which they can reach this launcher.
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: p.tls}
	if p.cfg.Addr.IsValid() && p.cfg.Addr.Is4() == addr.Is4() {
		d.NetDialer.LocalAddr = &net.TCPAddr{IP: p.cfg.Addr.AsSlice()}
	}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(p.cfg.Name.Port)))
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(question{p.self(), what}); err != nil {
		return answer{}, err
	}
	var a answer
	if err := read(conn, &a); err != nil {
		return answer{}, err
	}
	return a, nil
}

// Finish answers the questions of other launchers with the end of the job, and returns when all
// launchers that answer have the stage finished, or when ctx ends. Otherwise a launcher that is
// looking for the job would start it again.
func (p *Point) Finish(ctx context.Context) {
	p.setStage(finished)
	for ctx.Err() == nil {
		s := p.survey(ctx)
		if !slices.ContainsFunc(s.answers, func(v addressedAnswer) bool { return v.Stage != finished }) {
			return
		}
		_ = pause.For(ctx, maxPause)
	}
}

// Finished reports whether another launcher knows that the job has finished. It surveys all
// launchers once. A launcher that does not answer does not count.
func (p *Point) Finished(ctx context.Context) bool {
	return slices.ContainsFunc(p.survey(ctx).answers, func(v addressedAnswer) bool { return v.Stage == finished })
}
