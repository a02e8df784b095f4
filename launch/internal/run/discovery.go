package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

const (
	// announcePeriod is the interval of announcements of an unchanged job.
	announcePeriod = 30 * time.Second
	// announceRetry is the pause after a failed announcement. announceGap is the shortest pause
	// between two announcements.
	announceRetry = 2 * time.Second
	announceGap   = 500 * time.Millisecond
	// withdrawPeriod is the time limit of the announcement that a job has ended.
	withdrawPeriod = 2 * time.Second
	// maxAnnounced bounds the members in an announcement, and MaxTickets the keys.
	maxAnnounced = 8
	// lookupPause is the pause before the second lookup; it doubles up to maxLookupPause.
	lookupPause    = 250 * time.Millisecond
	maxLookupPause = 5 * time.Second
	// seekNews is the time without a result after which a line tells people so.
	seekNews = 5 * time.Second
)

// announcement is the part of a job that a Discovery publishes: members, under keys.
type announcement struct {
	keys    []string
	members []elastic.Member
}

// announcementOf returns the announcement of a job at a time. It is empty if the job is closed or
// has no valid ticket.
func announcementOf(k wire.Known, now time.Time) (a announcement) {
	if !k.Open {
		return a
	}
	for _, t := range k.Tickets {
		if t.Expiry == 0 || t.Expiry > now.Unix() {
			a.keys = append(a.keys, t.Key)
		}
	}
	// Choose the same members at all launchers, and from as many hosts as possible, so that the
	// announcement survives the loss of a host.
	hosts := make(map[string]bool)
	for _, sameHost := range []bool{false, true} {
		for _, m := range k.Members {
			there := slices.ContainsFunc(a.members, func(o elastic.Member) bool { return o.ID == m.ID })
			addrs := wire.BestAddrs(m, wire.ShownAddrs)
			if there || !sameHost && hosts[m.Host] || spec.OnlyLoopback(addrs) || len(a.members) == maxAnnounced {
				continue
			}
			hosts[m.Host] = true
			a.members = append(a.members, elastic.Member{ID: m.ID, Addrs: addrs})
		}
	}
	return a
}

// announcer publishes the job in a Discovery. The goroutine of run owns every field except the
// channel.
type announcer struct {
	to      spec.Discovery
	say     func(string)
	updates chan wire.Known // capacity 1: the latest state

	failed bool // the last announcement failed, and people were told
}

// newAnnouncer returns an announcer with nothing to announce yet.
func newAnnouncer(to spec.Discovery, say func(string)) *announcer {
	return &announcer{to: to, say: say, updates: make(chan wire.Known, 1)}
}

// update passes the latest known state of the job to run. It replaces a state that run has not read
// yet. Only one goroutine may call it.
func (a *announcer) update(k wire.Known) {
	select {
	case <-a.updates:
	default:
	}
	a.updates <- k // never blocks: there is no other sender
}

// run announces until ctx ends, and returns the last known state.
func (a *announcer) run(ctx context.Context) (latest wire.Known) {
	timer := time.NewTimer(announcePeriod)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		// Changes within announceGap make one announcement.
		case latest = <-a.updates:
			timer.Reset(max(0, announceGap-time.Since(last)))
		case <-timer.C:
			timer.Reset(a.announce(ctx, announcementOf(latest, time.Now())))
			last = time.Now()
		case <-ctx.Done():
			return latest
		}
	}
}

// announce publishes once, and returns the pause before the next announcement.
func (a *announcer) announce(ctx context.Context, what announcement) time.Duration {
	if len(what.keys) == 0 {
		return announcePeriod
	}
	err := a.to.Announce(ctx, what.keys, what.members)
	switch {
	case ctx.Err() != nil:
	// People get one line when announcements begin to fail and one when they work again.
	case err != nil && !a.failed:
		a.say(formatDiscoveryError("newcomers cannot find this job", err))
	case err == nil && a.failed:
		a.say("--dht: newcomers can find this job again")
	}
	if a.failed = err != nil; a.failed {
		return announceRetry
	}
	return announcePeriod
}

// formatDiscoveryError describes the failed action, the cause and the remedy in one line.
func formatDiscoveryError(what string, err error) string {
	why := strings.TrimPrefix(err.Error(), "discovery: ")
	return wire.ClipNote(fmt.Sprintf("--dht: %s: %s; does elrun bootstrap run there? trying again", what, printable.Line(why)))
}

// seeker looks up the key of a ticket. Its only goroutine is run.
type seeker struct {
	from  spec.Discovery
	key   string
	say   func(string)
	found func([]elastic.Member) // gets each result; must not block
}

// run looks up the key until ctx ends, with a growing pause (exponential backoff).
func (s *seeker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	begun, failed, found, missed := time.Now(), false, false, false
	// Pass on the members after each lookup that finds any. Print at most one line for each kind of
	// failure.
	for pause := lookupPause; ; pause = min(2*pause, maxLookupPause) {
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
			s.say(formatDiscoveryError("the job cannot be looked up", err))
		case len(members) > 0:
			found = true
			s.found(members)
		case err == nil && !found && !missed && time.Since(begun) > seekNews:
			missed = true
			s.say(fmt.Sprintf("--dht: nobody has announced the job of this ticket for %v; do its members run with --dht and the same --bootstrap? trying again", seekNews))
		}
		timer.Reset(pause)
	}
}

// discoveryState is the state of a launcher that announces or looks up a job. The launcher's loop
// owns it, except for found and known, which its goroutines write.
type discoveryState struct {
	announcer *announcer            // nil without a Discovery
	found     chan []elastic.Member // results of the seeker; the latest one counts
	latest    []elastic.Member      // the latest result, for peers that start later
	seeking   context.CancelFunc    // ends the seeker; nil without one
	stop      context.CancelFunc    // ends the announcer and the seeker
	work      sync.WaitGroup
	known     wire.Known // the announcer's last state; valid once work is done
}

// start begins to announce the job in to, unless to is nil. key is the public key of the ticket by
// which the peers join; start looks it up unless it is "". say prints lines for people.
func (d *discoveryState) start(ctx context.Context, to spec.Discovery, key string, say func(string)) {
	if to == nil {
		return
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.announcer = newAnnouncer(to, say)
	d.work.Go(func() { d.known = d.announcer.run(ctx) })
	if key == "" {
		return
	}
	d.found = make(chan []elastic.Member, 1)
	s := &seeker{from: to, key: key, say: say, found: func(m []elastic.Member) {
		select {
		case <-d.found:
		// found has capacity 1: an older result that the loop has not read yet is replaced.
		default:
		}
		d.found <- m
	}}
	seeking, cancel := context.WithCancel(ctx)
	d.seeking = cancel
	d.work.Go(func() { s.run(seeking) })
}

// announce passes the known state of the job to the announcer. Once a peer of this launcher is a
// member (joined), the lookup ends, because the peer knows the members.
func (d *discoveryState) announce(k wire.Known, joined bool) {
	if d.announcer == nil {
		return
	}
	d.announcer.update(k)
	if d.seeking != nil && joined {
		d.seeking()
	}
}

// finish ends announcements and lookups. If the job has finished it announces the end, so that
// nobody looks for its members.
func (d *discoveryState) finish(finished bool) {
	if d.announcer == nil {
		return
	}
	d.stop()
	d.work.Wait()
	if a := announcementOf(d.known, time.Now()); finished && len(a.keys) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawPeriod)
		defer cancel()
		_ = d.announcer.to.Announce(ctx, a.keys, nil) // an error is ignored: the announcement expires by itself
	}
}
