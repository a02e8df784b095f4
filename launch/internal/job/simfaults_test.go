package job_test

import (
	"fmt"

	"github.com/elrun/elrun/launch/internal/job"
)

// fault is a disturbance at a time. pick and arg select what it disturbs.
type fault struct {
	at, pick, arg int
	kind          string
}

// fits tells whether a fault of a kind can disturb p.
func fits(kind string, p *peer) bool {
	switch kind {
	case "halt newcomer":
		return p.state == boot || p.state == waiting || p.state == joining
	case "mistake", "halt", "spoil", "quit", "fence", "kick":
		return p.state == member
	}
	return !p.dead()
}

// disturb disturbs a process or a launcher.
func (w *world) disturb(f fault) {
	var pool []*peer
	for _, p := range w.procs {
		if fits(f.kind, p) {
			pool = append(pool, p)
		}
	}
	l := w.launchers[f.pick%len(w.launchers)]
	if l.ended || len(pool) == 0 {
		return
	}
	p := pool[f.pick%len(pool)]
	w.say("FAULT %s at process %d (launcher %d seat %d)", f.kind, p.pid, p.l.n, p.seat)
	switch f.kind {
	case "scale":
		w.step(l, job.Scale{N: 1 + f.arg%4})
	case "signal":
		l.sig = true
		w.step(l, job.Signal{Number: 15})
	case "stop":
		w.stop(100, map[string]bool{})
	default:
		w.hurt(f, p)
	}
}

// hurt disturbs a process.
func (w *world) hurt(f fault, p *peer) {
	switch f.kind {
	case "kill", "slow kill":
		p.slowDeath = f.kind == "slow kill"
		w.kill(p)
	case "kill all": // processes of one launcher
		for _, q := range w.procs {
			if q.l == p.l && !q.dead() {
				w.kill(q)
			}
		}
	case "term":
		w.awake(p, func() {
			if !p.deaf && (p.state == boot || p.state == waiting) {
				p.root = true
				p.l.roots++
			}
			w.term(p)
		})
	case "kick":
		if w.fenceable(p) {
			w.kick(p, f.arg%2)
		}
	case "halt newcomer", "halt":
		p.stopped = true
		w.step(p.l, job.Halted{Seat: p.seat, On: true})
		if f.kind == "halt" {
			w.after(60, func() { w.cont(p) })
		}
	case "mistake":
		if p.g != nil && !p.g.over && !p.g.mistake {
			w.err(p.g, p, f.arg%2 == 0, f.arg%3 == 0)
		}
	case "fence":
		if w.fenceable(p) {
			w.fence(p)
		}
	case "quit": // os.Exit(0) before the last step
		w.exit(p, 0, 0)
	case "spoil":
		p.spoils = true
	case "deaf":
		p.deaf = true
	case "silent": // from now on, or from its next program on
		p.silent = true
	case "admission":
		w.killMembers = true
	}
}

// stop is elrun stop: it asks all peers that it finds, again and again, and each tells its launcher.
func (w *world) stop(n int, asked map[string]bool) {
	for _, q := range w.procs {
		key := fmt.Sprint(q.pid, q.program)
		if (q.state == waiting || q.state == joining || q.state == member) && !q.stopped && !asked[key] {
			asked[key] = true
			q.l.stop = true
			w.step(q.l, job.Stop{})
			w.term(q)
		}
	}
	if n > 0 {
		w.after(1, func() { w.stop(n-1, asked) })
	}
}
