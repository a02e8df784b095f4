package job_test

import (
	"slices"
	"time"

	"github.com/elrun/elrun/launch/internal/job"
)

// launcher carries out the outputs of one Job, and passes it the facts.
type launcher struct {
	n         int
	job       *job.Job
	ended     bool
	over      job.Over
	stop, sig bool
	result    bool // a peer has reported it
	mistakes  int  // reported
	mistakeAt int
	roots     int // failures of its peers that have no other cause
}

// The bounds of the simulated launchers, in units.
const (
	grace        = 100
	startTimeout = 300
)

func (w *world) launch(n int, c job.Config) {
	c.Grace, c.StartTimeout = grace*unit, startTimeout*unit
	j, outs := job.New(c)
	l := &launcher{n: n, job: j}
	w.launchers = append(w.launchers, l)
	w.carry(l, outs)
	var tick func()
	tick = func() {
		if l.ended {
			return
		}
		w.step(l, job.Tick{Now: time.Duration(w.now) * unit})
		for _, p := range w.procs {
			if p.l == l && p.stopped && p.state != gone {
				w.step(l, job.Halted{Seat: p.seat, On: true})
			}
		}
		w.after(5, tick)
	}
	tick()
}

// step passes a fact to a launcher.
func (w *world) step(l *launcher, in job.Input) {
	if _, quiet := in.(job.Tick); !quiet && !l.ended {
		w.say("launcher %d <- %T%v", l.n, in, in)
	}
	switch in := in.(type) {
	case job.Hello:
		if p := w.find(l, in.Seat); p != nil && p.id == in.ID {
			p.helloAt, p.answer = w.now, nil
		}
	case job.Renew:
		if p := w.find(l, in.Seat); p != nil {
			p.answer = nil // a Join in another form
		}
	case job.Done:
		l.result = true
		if l.mistakeAt > 0 && w.now-l.mistakeAt > 40 && !slices.ContainsFunc(w.procs, func(p *peer) bool { return p.deaf }) {
			w.fail("a result long after a mistake")
		}
	case job.Mistake:
		if l.mistakes++; l.mistakes == 1 {
			l.mistakeAt = w.now
		}
	}
	w.carry(l, l.job.Step(in))
}

// find returns the process in a seat.
func (w *world) find(l *launcher, seat int) *peer {
	for _, p := range w.procs {
		if p.l == l && p.seat == seat && p.state != gone {
			return p
		}
	}
	return nil
}

// carry carries out the outputs of a launcher.
func (w *world) carry(l *launcher, outs []job.Output) {
	for _, o := range outs {
		if l.ended {
			w.fail("output %T after the last one", o)
		}
		w.say("launcher %d -> %T%v", l.n, o, o)
		switch o := o.(type) {
		case job.Start:
			w.begin(l, o.Seat)
		case job.Over:
			w.over(l, o)
		case job.Obituary:
			w.after(4, func() { w.obituary(l, o.IDs) })
		case job.Ask:
			w.ask(w.find(l, o.Seat))
		case job.Kill:
			if p := w.find(l, o.Seat); p != nil {
				if p.stopped && !l.sig {
					p.root = true
					l.roots++
				}
				w.exit(p, -1, 9)
			}
		case job.Unscaled, job.Ended:
		default:
			w.deliver(l, o)
		}
	}
}

// begin starts a process.
func (w *world) begin(l *launcher, seat int) {
	if w.find(l, seat) != nil {
		w.fail("two processes in seat %d", seat)
	}
	if l.sig || l.stop || l.result && w.p.programs == 1 {
		w.fail("a start after the end has begun")
	}
	p := &peer{pid: len(w.procs) + 1, seat: seat, program: 1, l: l}
	w.procs = append(w.procs, p)
	w.boot(p)
}

// over ends a launcher.
func (w *world) over(l *launcher, o job.Over) {
	l.ended, l.over = true, o
	for _, p := range w.procs {
		if p.l == l && p.state != gone {
			w.fail("launcher %d ended before its process %d", l.n, p.pid)
		}
	}
}

// obituary tells any live member of another launcher of deaths. It is confirmed by this member, or if no
// process of another launcher is left.
func (w *world) obituary(l *launcher, ids []job.ID) {
	others := false
	for _, p := range w.procs {
		if p.l == l || p.g == nil || p.dead() {
			continue
		}
		if p.state == member && !p.stopped {
			for _, id := range ids {
				p.g.known[id] = true
			}
			others = false
			break
		}
		others = true
	}
	if !others {
		w.after(4, func() { w.step(l, job.Told{IDs: ids}) })
	}
}

// ask sends SIGTERM to a process.
func (w *world) ask(p *peer) {
	if p == nil {
		return
	}
	w.after(grace+30, func() {
		if p.state != gone {
			w.fail("%s lives long after it was asked", p.id)
		}
	})
	w.cont(p)
	w.term(p)
}

// seatOf returns the seat to which a message goes.
func seatOf(o job.Output) int {
	switch o := o.(type) {
	case job.First:
		return o.Seat
	case job.Join:
		return o.Seat
	case job.Pass:
		return o.Seat
	case job.Finish:
		return o.Seat
	case job.Abort:
		return o.Seat
	case job.Hold:
		return o.Seat
	case job.Dead:
		return o.Seat
	}
	return -1
}

// deliver sends an output to the process that it is for, in order.
func (w *world) deliver(l *launcher, o job.Output) {
	p := w.find(l, seatOf(o))
	if p == nil {
		return
	}
	switch o.(type) {
	case job.First, job.Join, job.Finish, job.Abort:
		if p.id != "" {
			w.answered(p, o)
		}
	}
	pid, program := p.pid, p.program
	p.recvAt = max(p.recvAt, w.now+1+w.pick(4, 2, pid, w.now))
	w.at(p.recvAt, func() {
		if p.program == program && p.id != "" {
			w.awake(p, func() { w.receive(p, o) })
		}
	})
}

// answered checks an answer to a hello: it comes in time, and none follows Finish, Abort or First.
func (w *world) answered(p *peer, o job.Output) {
	switch p.answer.(type) {
	case nil:
		if w.now-p.helloAt > startTimeout+10 && p.program == 1 && p.renewals == 0 {
			w.fail("late answer %T to %s", o, p.id)
		}
	case job.Finish, job.Abort, job.First:
		w.fail("answer %T to %s after %T", o, p.id, p.answer)
	}
	p.answer = o
}
