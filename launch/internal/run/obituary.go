package run

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/job"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/transport/p2p"
)

// Half of the members of a job may go on if they know for certain that the other half is dead. If all
// members of a launcher have died, nobody but the launcher knows it. So it tells the peers of other
// launchers: on its host by their control sockets, which belong to the same user, and otherwise over the
// network, with its signature. Member.Launcher is the public key of the launcher, so all members can
// check it.

// obituary is the result of telling others of deaths.
type obituary struct {
	ids  []job.ID
	told bool // a member has confirmed it, or there is none to tell
}

// herald tells the peers of other launchers of deaths, one request after the other.
type herald struct {
	key     ed25519.PrivateKey // of this launcher, which never leaves it
	busy    bool
	results chan obituary // capacity 1
}

// announce tells the peers of other launchers on this host of deaths. The result comes to announced. The
// job repeats what nobody has confirmed.
func (s *supervisor) announce(ids []job.ID) {
	if s.herald.busy {
		return
	}
	s.herald.busy = true
	var dead []elastic.ID
	for _, id := range ids {
		dead = append(dead, s.roster.full(id))
	}
	own, name := s.procs.pids(), s.o.Job
	signed, others := wire.SignDeaths(s.herald.key, dead), s.roster.others()
	s.procs.work.Go(func() {
		here, known := tellDead(name, own, dead)
		if !here && len(others) > 0 {
			here, known = tellFar(others, signed)
		}
		s.herald.results <- obituary{ids, here || known}
	})
}

// announced handles the result of announce.
func (s *supervisor) announced(o obituary) {
	s.herald.busy = false
	if o.told {
		s.record(job.Told{IDs: o.ids})
	}
}

// tellFar tells members of other launchers, over the network. It returns whether one of them has confirmed
// it, and whether none of them is left.
func tellFar(members []elastic.Member, all []p2p.Obituary) (confirmed, none bool) {
	ctx, cancel := context.WithTimeout(context.Background(), ctl.ControlPeriod)
	defer cancel()
	told, gone := make([]bool, len(members)), make([]bool, len(members))
	var telling sync.WaitGroup
	for i, m := range members[:min(len(members), maxTold)] {
		telling.Go(func() {
			var err error
			for part := range slices.Chunk(all, p2p.MaxObituaries) {
				if err = p2p.Tell(ctx, m, part); err != nil {
					break
				}
			}
			told[i], gone[i] = err == nil, errors.Is(err, p2p.ErrNoMember)
		})
	}
	telling.Wait()
	return slices.Contains(told, true), !slices.Contains(gone, false)
}

// maxTold bounds the members that a launcher tells at once.
const maxTold = 16

// tellDead tells the peers of a job on this host, except for the processes in own, that peers are dead.
// It returns whether one of them has confirmed it, and whether none of them is a member. One that is
// stopped may be one.
func tellDead(name string, own []int, dead []elastic.ID) (told, none bool) {
	all, err := ctl.List()
	if err != nil {
		return false, true
	}
	all = slices.DeleteFunc(all, func(n ctl.SocketName) bool { return n.Job != name || slices.Contains(own, n.PID) })
	confirmed, silent := make([]bool, len(all)), make([]bool, len(all))
	var asking sync.WaitGroup
	for i, at := range all {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), ctl.ControlPeriod)
			defer cancel()
			var err error
			for part := range slices.Chunk(dead, wire.MaxDead) {
				if _, err = ctl.Ask(ctx, at, wire.Request{Request: "dead", Dead: part}); err != nil {
					break
				}
			}
			confirmed[i] = err == nil
			silent[i] = errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
		})
	}
	asking.Wait()
	return slices.Contains(confirmed, true), !slices.Contains(silent, true)
}
