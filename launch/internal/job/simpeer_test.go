package job_test

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/launch/internal/job"
)

// state is what a process does.
type state int

const (
	boot state = iota
	waiting
	joining
	member
	closing
	dying
	gone
)

func (s state) String() string {
	return [...]string{"boot", "wait for an answer", "join", "member", "close", "die", "gone"}[s]
}

// peer is a process.
type peer struct {
	pid, seat, program    int
	id                    job.ID
	l                     *launcher
	state                 state
	stopped, termed, done bool
	since, sendAt, recvAt int
	inbox                 []func() // what it does once it is continued
	g                     *group
	root                  bool // its failure has no other cause
	spoils, spoiled       bool // it cannot keep the result
	erring                bool // it ends by a mistake
	deaf, silent          bool // it ignores SIGTERM; it never says hello
	slowDeath             bool // the kernel ends it late
	renewals              int
	helloAt               int        // when the launcher got its hello
	answer                job.Output // the last answer to it
}

// dead tells whether p does nothing any more.
func (p *peer) dead() bool { return p.state == dying || p.state == gone }

// send passes a fact from a peer to its launcher, in order.
func (w *world) send(p *peer, in job.Input) {
	p.sendAt = max(p.sendAt, w.now+1+w.pick(5, 1, p.pid, w.now))
	w.at(p.sendAt, func() { w.step(p.l, in) })
}

// boot starts the program of a process.
func (w *world) boot(p *peer) {
	p.state, p.since, p.id, p.g, p.done, p.termed = boot, w.now, "", nil, false, false
	pid, program := p.pid, p.program
	w.after(900, func() {
		if p.silent && p.state == boot && p.program == program {
			w.exit(p, 0, 0)
		}
	})
	w.after(2+w.pick(w.p.boot, 3, pid, program), func() {
		w.awake(p, func() {
			if p.state == boot && p.program == program && !p.silent {
				p.state, p.id = waiting, job.ID(fmt.Sprintf("%d.%d", pid, program))
				w.send(p, job.Hello{Seat: p.seat, ID: p.id, Program: program})
			}
		})
	})
}

// awake runs do now, or when p is continued.
func (w *world) awake(p *peer, do func()) {
	if p.stopped {
		p.inbox = append(p.inbox, do)
		return
	}
	do()
}

// receive handles a message of the launcher.
func (w *world) receive(p *peer, o job.Output) {
	if p.dead() {
		return
	}
	looks := p.state == waiting || p.state == joining
	switch o := o.(type) {
	case job.First:
		if looks { // a member ignores it
			w.enter(p, o)
		}
	case job.Join:
		_, latest := p.answer.(job.Join) // otherwise Finish follows
		for _, g := range w.groups {
			if latest && !g.over && g.program != p.program {
				w.fail("%s is to join a group of another program", p.id)
			}
		}
		if p.state == waiting {
			p.state, p.since = joining, w.now
			w.after(20, func() { w.lookout(p) })
		}
	case job.Finish:
		if looks {
			w.exit(p, 0, 0)
		}
	case job.Abort:
		if looks {
			w.exit(p, 1, 0)
		}
	case job.Hold:
		if p.state == joining {
			p.state = waiting
			w.send(p, job.Hello{Seat: p.seat, ID: p.id, Program: p.program})
		}
	case job.Dead:
		if p.state == member {
			p.g.known[o.ID] = true
		}
	}
}

// lookout ends a newcomer that finds nobody for 10 s.
func (w *world) lookout(p *peer) {
	if p.state != joining {
		return
	}
	if slices.ContainsFunc(w.groups, func(g *group) bool { return !g.over }) {
		p.since = w.now
	}
	if w.now-p.since > 100 && !p.stopped {
		w.send(p, job.Refused{Seat: p.seat})
		w.exit(p, 1, 0)
		return
	}
	w.after(20, func() { w.lookout(p) })
}

// exit ends the program of a process: by a status, or by a signal if sig is set.
func (w *world) exit(p *peer, code, sig int) {
	if p.dead() {
		return
	}
	w.say("process %d (launcher %d, seat %d, program %d, %s) ends: %d, signal %d", p.pid, p.l.n, p.seat, p.program, p.state, code, sig)
	p.inbox = nil
	if sig == 0 && p.program < w.p.programs && !p.termed {
		w.send(p, job.Gone{Seat: p.seat})
		p.program++
		w.boot(p)
		return
	}
	p.state = gone
	end := job.Exit{Seat: p.seat, Code: code, Signal: sig}
	if sig == 9 && p.slowDeath {
		w.send(p, job.Dying{Seat: p.seat})
		p.state = dying
		w.after(8, func() { p.state = gone; w.send(p, end) })
		return
	}
	w.send(p, end)
}

func (w *world) kill(p *peer) { p.root = true; p.l.roots++; w.exit(p, -1, 9) }

// term sends SIGTERM.
func (w *world) term(p *peer) {
	if p.deaf {
		return
	}
	switch p.state {
	case boot, waiting:
		w.exit(p, -1, 15)
	case joining:
		w.send(p, job.Leave{Who: p.id, Soon: true})
		p.termed = true
		w.exit(p, 0, 0)
	case member:
		w.send(p, job.Leave{Who: p.id, Soon: true})
		p.termed = true
	}
}

// cont continues a stopped process.
func (w *world) cont(p *peer) {
	if !p.stopped || p.dead() {
		return
	}
	p.stopped = false
	w.step(p.l, job.Halted{Seat: p.seat})
	todo := p.inbox
	p.inbox = nil
	for _, f := range todo {
		f()
	}
}
