package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/printable"
)

// Discovery is where a job is announced, outside of it, so that newcomers find members that their
// ticket does not name. It is asked by key: the public half of a ticket's, which only members and
// holders of the ticket know. What is found is a hint; newcomers and members prove themselves to
// each other when they connect.
//
// The launchers of a job announce it, if it is open to the network and has tickets, whenever its
// members or tickets change, and twice a minute; the end of the job as a job without members.
// Launchers that join by a ticket look its key up until one of their peers is a member.
type Discovery interface {
	// Announce lets those who know one of the keys find the members, for some minutes.
	Announce(ctx context.Context, keys []string, members []elastic.Member) error
	// Find returns those who were announced under a key last; none is no error.
	Find(ctx context.Context, key string) ([]elastic.Member, error)
}

const (
	// announcePeriod is how often a job is announced of which nothing changes.
	announcePeriod = 30 * time.Second
	// announceRetry is the pause after an announcement that has failed, and announceGap the
	// shortest one between two.
	announceRetry = 2 * time.Second
	announceGap   = 500 * time.Millisecond
	// withdrawPeriod is how long the end of a job may wait to be announced.
	withdrawPeriod = 2 * time.Second
	// maxAnnounced is how many members are announced, and maxTickets under how many keys.
	maxAnnounced = 8
	maxTickets   = 128
	// seekPause is the pause before the second question; it doubles up to seekMost.
	seekPause = 250 * time.Millisecond
	seekMost  = 5 * time.Second
	// seekNews is how long nobody was found until people are told.
	seekNews = 5 * time.Second
)

// openTicket is a ticket by which peers may join, as long as it holds.
type openTicket struct {
	Key    string `json:"key"`
	Expiry int64  `json:"expiry"` // Unix seconds
}

// ticketsOf returns the tickets of a view that let somebody in.
func ticketsOf(v elastic.View) []openTicket {
	var out []openTicket
	for _, g := range v.Grants {
		if g.Issuer != "" && g.Left() {
			out = append(out, openTicket{string(g.Key), g.Expiry})
		}
	}
	return out
}

// announcement is what newcomers are to find.
type announcement struct {
	keys    []string
	members []elastic.Member
}

// announcementOf returns what is announced of a job at a time; nothing if there are no keys.
func announcementOf(k known, now time.Time) (a announcement) {
	if !k.Open {
		return a
	}
	for _, t := range k.Tickets {
		if t.Expiry == 0 || t.Expiry > now.Unix() {
			a.keys = append(a.keys, t.Key)
		}
	}
	// The same at all launchers, and of many hosts, so that it lasts.
	hosts := make(map[string]bool)
	for _, sameHost := range []bool{false, true} {
		for _, m := range k.Members {
			there := slices.ContainsFunc(a.members, func(o elastic.Member) bool { return o.ID == m.ID })
			addrs := bestAddrs(m, shownAddrs)
			if there || !sameHost && hosts[m.Host] || onlyLoopback(addrs) || len(a.members) == maxAnnounced {
				continue
			}
			hosts[m.Host] = true
			a.members = append(a.members, elastic.Member{ID: m.ID, Addrs: addrs})
		}
	}
	return a
}

// announcer tells a Discovery of the job. One goroutine, run, owns what is not a channel.
type announcer struct {
	to   Discovery
	say  func(string)
	news chan known // the latest one

	failed bool
}

// newAnnouncer makes one that has nothing to announce yet.
func newAnnouncer(to Discovery, say func(string)) *announcer {
	return &announcer{to: to, say: say, news: make(chan known, 1)}
}

// tell hands over what is known of the job.
func (a *announcer) tell(k known) {
	select {
	case <-a.news:
	default:
	}
	a.news <- k // nobody else sends
}

// run announces until ctx ends, and returns what was known last.
func (a *announcer) run(ctx context.Context) (latest known) {
	timer := time.NewTimer(announcePeriod)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case latest = <-a.news:
			timer.Reset(max(0, announceGap-time.Since(last)))
		case <-timer.C:
			timer.Reset(a.announce(ctx, announcementOf(latest, time.Now())))
			last = time.Now()
		case <-ctx.Done():
			return latest
		}
	}
}

// announce announces once, and returns the pause after it.
func (a *announcer) announce(ctx context.Context, what announcement) time.Duration {
	if len(what.keys) == 0 {
		return announcePeriod
	}
	err := a.to.Announce(ctx, what.keys, what.members)
	switch {
	case ctx.Err() != nil:
	case err != nil && !a.failed:
		a.say(wordDiscovery("newcomers cannot find this job", err))
	case err == nil && a.failed:
		a.say("--dht: newcomers can find this job again")
	}
	if a.failed = err != nil; a.failed {
		return announceRetry
	}
	return announcePeriod
}

// wordDiscovery says what does not work, why, and what to do, in one line.
func wordDiscovery(what string, err error) string {
	why := strings.TrimPrefix(err.Error(), "discovery: ")
	return clipNote(fmt.Sprintf("--dht: %s: %s; does elrun bootstrap run there? trying on", what, printable.Line(why)))
}

// seeker looks up the key of a ticket, in a goroutine of its own, that of run.
type seeker struct {
	from  Discovery
	key   string
	say   func(string)
	found func([]elastic.Member) // is told who was found; must not block
}

// run looks until ctx ends.
func (s *seeker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	begun, failed, found, missed := time.Now(), false, false, false
	for pause := seekPause; ; pause = min(2*pause, seekMost) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		members, err := s.from.Find(ctx, s.key)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			failed = true
			s.say(wordDiscovery("the job cannot be looked up", err))
		case len(members) > 0:
			found = true
			s.found(members)
		case err == nil && !found && !missed && time.Since(begun) > seekNews:
			missed = true
			s.say(fmt.Sprintf("--dht: nobody has announced the job of this ticket for %v; do its members have --dht, with the same --bootstrap? trying on", seekNews))
		}
		timer.Reset(pause)
	}
}

// discoveries are what a launcher has to do with a Discovery.
type discoveries struct {
	announcer *announcer            // nil without one
	found     chan []elastic.Member // by the seeker; the latest counts
	latest    []elastic.Member
	seeking   context.CancelFunc // ends the seeker; nil if there is none
	stop      context.CancelFunc
	work      sync.WaitGroup
	known     known // that the announcer had last, after work
}

// discover begins to announce the job, and to look for it if the peers are to join it.
func (r *runner) discover(ctx context.Context, key string) {
	d := &r.discoveries
	if r.o.Discovery == nil {
		return
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.announcer = newAnnouncer(r.o.Discovery, r.console.say)
	d.work.Go(func() { d.known = d.announcer.run(ctx) })
	if key == "" {
		return
	}
	d.found = make(chan []elastic.Member, 1)
	s := &seeker{from: r.o.Discovery, key: key, say: r.console.say, found: func(m []elastic.Member) {
		select {
		case <-d.found:
		default:
		}
		d.found <- m
	}}
	seeking, cancel := context.WithCancel(ctx)
	d.seeking = cancel
	d.work.Go(func() { s.run(seeking) })
}

// announce tells the announcer what is known of the job. A peer that is in knows its members.
func (r *runner) announce() {
	d := &r.discoveries
	if d.announcer == nil {
		return
	}
	d.announcer.tell(r.meet.latest)
	if d.seeking != nil && r.meet.own() {
		d.seeking()
	}
}

// discovered tells all peers who was found.
func (r *runner) discovered(members []elastic.Member) {
	r.discoveries.latest = members
	for _, c := range r.children {
		c.send(message{Found: members})
	}
}

// undiscover ends what discover has begun. If the job has finished that is announced, so that
// nobody looks for its members.
func (r *runner) undiscover() {
	d := &r.discoveries
	if d.announcer == nil {
		return
	}
	d.stop()
	d.work.Wait()
	if a := announcementOf(d.known, time.Now()); r.changes.done && len(a.keys) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawPeriod)
		defer cancel()
		_ = d.announcer.to.Announce(ctx, a.keys, nil) // or else it is forgotten in a while
	}
}
