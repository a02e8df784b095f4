package inpeer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// search is a newcomer's search for a member that admits it. The newcomer connects to the addresses
// of a ticket, to learn which member listens at each address. It shows its credential to every
// member that answers, and to every peer that is found on the local network or by a Discovery. All
// attempts run concurrently, and the newcomer tries an address again until a member answers:
//
//	address --identify--> member --prove--> in, or a refusal
//	found   --------------^
//
// Found peers are not authenticated. A refusal without a proof of membership counts only if it
// comes from a member at one of the ticket's addresses. One goroutine owns the search: the caller
// of run.
type search struct {
	i          *identity
	credential ticket.Credential
	addrs      []string
	found      func() []elastic.Member
	timeout    time.Duration // longest time without progress

	attempts     []attempt // by index in addrs
	named        []elastic.Member
	asked        map[elastic.ID]bool  // members at the ticket's addresses that were asked
	askedFound   map[elastic.ID]bool  // found peers that were asked; their addresses may be false
	retry        []elastic.ID         // peers to ask again at the next round
	foundCancels []context.CancelFunc // cancel the attempts with found peers, oldest first
	replies      chan searchReply
	work         sync.WaitGroup

	begun, progress time.Time
	refusal         error // a refusal by a member at an address of the ticket
	refused         time.Time
	last            error
}

// attempt is the state of the attempt at an address.
type attempt struct {
	id  elastic.ID // the ID of the peer that listens there; "" if unknown
	err error      // why the ID is unknown, or why the member refused
}

// searchReply is the result of one step: of identify if addr is not -1, otherwise of prove.
type searchReply struct {
	addr   int // index, or -1
	member elastic.Member
	named  bool
	err    error
}

const (
	// contactPeriod is the interval at which new members are asked.
	contactPeriod = 100 * time.Millisecond
	// redialPeriod is the pause between two attempts at an address.
	redialPeriod = 500 * time.Millisecond
	// turnPeriod is the time after which a newcomer tries the next address of its ticket as well.
	turnPeriod = 500 * time.Millisecond
	// newsPeriod is the longest time until all members know a new ticket. So a refusal ends the
	// search only after this time, because another member may still admit the newcomer.
	newsPeriod = 2 * time.Second
	// contactsLimit is how long the member that has admitted a newcomer may take to name others.
	contactsLimit = 5 * time.Second
	// vacantAfter is the time after which a job counts as ended if nobody listens at any address
	// of the ticket.
	vacantAfter = 10 * time.Second
)

// admissionResult is the result of a successful search.
type admissionResult struct {
	by      elastic.Member   // the member that has admitted this peer
	others  []elastic.Member // further likely members, in case that member dies
	unheard []string         // addresses without an answer so far
}

// findAdmission gets this identity admitted by a member that listens at addrs or is found
// meanwhile. The error is in words for the user; searchError has more lines.
func (i *identity) findAdmission(ctx context.Context, c ticket.Credential, addrs []string, found func() []elastic.Member, patience time.Duration) (admissionResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	now := time.Now()
	s := &search{i: i, credential: c, addrs: addrs, found: found, timeout: patience, attempts: make([]attempt, len(addrs)),
		asked: make(map[elastic.ID]bool), askedFound: make(map[elastic.ID]bool), replies: make(chan searchReply), begun: now, progress: now}
	defer s.work.Wait()
	defer cancel()
	// One goroutine for each address asks who listens there; run collects the answers.
	for turn, n := range turns(len(addrs), string(i.ep.Self.ID)) {
		s.work.Go(func() {
			if pause.For(ctx, time.Duration(turn)*turnPeriod) == nil {
				s.dialAddr(ctx, n)
			}
		})
	}
	by, err := s.run(ctx)
	if err != nil {
		return admissionResult{}, err
	}
	// A member has accepted the credential: from now on this peer shows it to the other members as
	// well.
	i.setCredential(c)
	in := admissionResult{by: by, others: s.named}
	for n, t := range s.attempts {
		if t.id == "" {
			in.unheard = append(in.unheard, addrs[n])
		}
	}
	// Some members are reachable only at addresses that are not in the view. Ask for these
	// addresses now, because the member that has admitted this peer may be about to leave. It may also
	// be out of reach by now, and another one let this peer in.
	within, end := context.WithTimeout(ctx, contactsLimit)
	defer end()
	known, err := i.net.Contacts(within, by.ID)
	if err == nil {
		in.others = append(in.others, known[:min(len(known), maxFound)]...)
	}
	return in, nil
}

// turns returns the order in which a newcomer with this ID tries n addresses: the order of the
// ticket, rotated by a hash of the ID, so that many newcomers do not all begin with the same
// member.
func turns(n int, id string) []int {
	h := fnv.New32a()
	h.Write([]byte(id))
	out := make([]int, n)
	for i := range out {
		out[i] = int((h.Sum32() + uint32(i)) % uint32(n))
	}
	return out
}

// dialMore tries each address, for at most vacantAfter, until a member answers, and calls found
// with the member.
func (i *identity) dialMore(addrs []string, found func(elastic.Member)) {
	for _, addr := range addrs {
		i.work.Go(func() {
			ctx, cancel := context.WithTimeout(i.ctx, vacantAfter)
			defer cancel()
			for wait := redialPeriod; pause.For(ctx, wait) == nil; wait *= 2 {
				if m, err := i.net.Identify(ctx, addr); err == nil {
					found(m)
					return
				}
			}
		})
	}
}

// run handles replies until a member has admitted this peer or the search has failed.
func (s *search) run(ctx context.Context) (elastic.Member, error) {
	again := time.NewTicker(contactPeriod)
	defer again.Stop()
	for {
		// Ask members at the ticket's addresses, and found peers, that are new since the last
		// round.
		s.ask(ctx, s.named, true)
		s.ask(ctx, s.found(), false)
		select {
		case r := <-s.replies:
			if r.addr >= 0 {
				s.onDialed(r)
			} else if done, err := s.onProved(r); done || err != nil {
				return r.member, err
			}
		case now := <-again.C:
			// The members in retry did not know the ticket: forget that they were asked, so that
			// ask asks them again.
			for _, id := range s.retry {
				delete(s.asked, id)
			}
			s.retry = nil
			if err := s.giveUpReason(now); err != nil {
				return elastic.Member{}, err
			}
		case <-ctx.Done():
			return elastic.Member{}, s.failed(context.Cause(ctx))
		}
	}
}

// dialAddr tries an address until a member answers.
func (s *search) dialAddr(ctx context.Context, n int) {
	for {
		m, err := s.i.net.Identify(ctx, s.addrs[n])
		if !s.reply(ctx, searchReply{addr: n, member: m, err: err}) || err == nil || pause.For(ctx, redialPeriod) != nil {
			return
		}
	}
}

// reply passes a reply to run. It returns false if run has ended.
func (s *search) reply(ctx context.Context, r searchReply) bool {
	select {
	case s.replies <- r:
		return true
	case <-ctx.Done():
		return false
	}
}

// onDialed records the result of an attempt at an address.
func (s *search) onDialed(r searchReply) {
	t := &s.attempts[r.addr]
	t.id, t.err = r.member.ID, r.err
	if r.err != nil {
		s.last = r.err
		return
	}
	t.err = errors.New("it has not answered yet")
	s.progress = time.Now()
	i := slices.IndexFunc(s.named, func(m elastic.Member) bool { return m.ID == r.member.ID })
	if i < 0 {
		s.named = append(s.named, r.member)
		return
	}
	s.named[i].Addrs = append(slices.Clone(s.named[i].Addrs), r.member.Addrs...)
}

// ask shows the credential to the members that have not been asked, concurrently. It cancels all
// attempts with found peers except the latest maxFound, because anybody can announce peers.
func (s *search) ask(ctx context.Context, members []elastic.Member, named bool) {
	asked := s.askedFound
	if named {
		asked = s.asked
	}
	for _, m := range members {
		if asked[m.ID] || m.ID == s.i.ep.Self.ID {
			continue
		}
		asked[m.ID] = true
		within, cancel := context.WithCancel(ctx)
		// Only attempts with found peers are bounded.
		if !named {
			s.foundCancels = append(s.foundCancels, cancel)
			if len(s.foundCancels) > maxFound {
				s.foundCancels[0]()
				s.foundCancels = s.foundCancels[1:]
			}
		}
		s.work.Go(func() {
			defer cancel()
			err := s.i.net.Prove(within, m, s.credential)
			for errors.Is(err, elastic.ErrOutside) && pause.For(within, redialPeriod) == nil {
				err = s.i.net.Prove(within, m, s.credential) // it may be a member by then
			}
			s.reply(ctx, searchReply{addr: -1, member: m, named: named, err: err})
		})
	}
}

// onProved handles the result of showing the credential. An error ends the search.
func (s *search) onProved(r searchReply) (done bool, err error) {
	if r.err == nil {
		return true, nil
	}
	for n := range s.attempts {
		if s.attempts[n].id == r.member.ID {
			s.attempts[n].err = r.err
		}
	}
	s.last = r.err
	proven := func(target error) bool { return errors.Is(r.err, target) }
	switch {
	case slices.ContainsFunc([]error{ticket.ErrExpired, ticket.ErrUsedUp, ticket.ErrRevoked}, proven):
		return false, r.err // the member has proven its membership with this refusal
	case !r.named || !slices.ContainsFunc([]error{ticket.ErrKicked, ticket.ErrEnded, ticket.ErrOtherJob, ticket.ErrUnknown, p2p.ErrVersion}, proven):
		return false, nil
	case proven(ticket.ErrUnknown) && time.Since(s.begun) < newsPeriod:
		s.retry = append(s.retry, r.member.ID) // the member may not know the ticket yet
	// The first refusal ends the search, but only after newsPeriod, as another member may admit
	// this peer meanwhile.
	case s.refusal == nil:
		s.refusal, s.refused = r.err, time.Now()
	}
	return false, nil
}

// giveUpReason returns the reason why the search is over, or nil.
func (s *search) giveUpReason(now time.Time) error {
	switch {
	case s.refusal != nil && now.Sub(s.refused) > newsPeriod:
		return s.refusal
	case now.Sub(s.begun) > vacantAfter && s.vacant():
		return s.failed(fmt.Errorf("%w: nobody listens at any of its addresses", ticket.ErrEnded))
	case now.Sub(s.progress) > s.timeout:
		return s.failed(fmt.Errorf("no member has let this peer in for %v", s.timeout))
	}
	return nil
}

// vacant reports whether nobody was found and all addresses refuse connections. A refused
// connection (RST) shows that the host is up and nobody listens; a timeout shows nothing.
func (s *search) vacant() bool {
	if len(s.found()) > 0 {
		return false
	}
	return !slices.ContainsFunc(s.attempts, func(t attempt) bool { return !errors.Is(t.err, syscall.ECONNREFUSED) })
}

// failed returns the error of a search that found no admission.
func (s *search) failed(cause error) error {
	e := &searchError{cause: cause, last: s.last}
	for n, t := range s.attempts {
		e.lines = append(e.lines, addrText(s.addrs[n])+": "+formatAttemptError(t.err))
	}
	return e
}

// searchError reports that no member has admitted the peer, with the cause for each address.
type searchError struct {
	cause, last error
	lines       []string
}

// Error implements error. It returns one line.
func (s *searchError) Error() string {
	text := fmt.Sprintf("%v (%d addresses tried)", s.cause, len(s.lines))
	if len(s.lines) == 1 {
		text = fmt.Sprintf("%v; %s", s.cause, s.lines[0])
	}
	return text
}

// Unwrap returns the causes, for errors.Is.
func (s *searchError) Unwrap() []error {
	if s.last == nil {
		return []error{s.cause}
	}
	return []error{s.cause, s.last}
}

// addrText returns a multiaddr as HOST:PORT, if it can be written so.
func addrText(addr string) string {
	parts := strings.Split(addr, "/")
	if len(parts) == 5 && parts[3] == "tcp" && parts[1] == "ip4" {
		return parts[2] + ":" + parts[4]
	}
	if len(parts) == 5 && parts[3] == "tcp" && parts[1] == "ip6" {
		return "[" + parts[2] + "]:" + parts[4]
	}
	return addr
}

// formatAttemptError describes the failure of an attempt and the remedy.
func formatAttemptError(err error) string {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		return "not tried yet"
	case is(syscall.ECONNREFUSED):
		return "connection refused: nobody listens there any more; ask for a new ticket"
	case is(syscall.EHOSTUNREACH), is(syscall.ENETUNREACH):
		return "no route: join from a network that reaches it, or let the job listen elsewhere (--listen)"
	case is(os.ErrDeadlineExceeded), is(context.DeadlineExceeded), is(syscall.ETIMEDOUT):
		return "no answer: is the host up, and does a firewall let the port through?"
	case is(p2p.ErrImpostor):
		return "a peer of another job answers there; ask for a new ticket"
	case is(p2p.ErrStranger):
		return "another program listens there; ask for a new ticket"
	}
	return inner(err)
}

// inner returns the text of err after the last prefix of package p2p, for people.
func inner(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "p2p: "); i >= 0 {
		text = text[i+len("p2p: "):]
	}
	return text
}
