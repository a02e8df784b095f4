package networktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// restChecks are of pairs that have not been used for long, and so rest.
func restChecks(o Options) []check {
	all := []check{
		{"message after a rest", 4, messageAfterRest},
		{"receive during a rest", 4, receiveDuringRest},
		{"many messages while pairs begin to rest", 4, messagesWhileResting},
		{"revocation during a rest", 4, revokedDuringRest},
		{"peer closes during a rest", 4, closedDuringRest},
		{"view ends while pairs begin to rest", 4, endWhileResting},
	}
	if o.Kill != nil {
		all = append(all, check{"peer dies during a rest", 4, diedDuringRest})
	}
	return all
}

// rested enters a view, uses all pairs, and waits until those that are not planned rest, and their lanes are closed.
func (g *group) rested() ([]transport.Transport, error) {
	v := g.next()
	ts, err := g.enter(v)
	if err != nil {
		return nil, err
	}
	err = g.works(v, ts)
	after(4 * g.idle)
	return ts, err
}

// messageAfterRest uses all pairs again and again after rests.
func messageAfterRest(g *group) error {
	ts, err := g.rested()
	if err != nil {
		return err
	}
	for range 3 {
		if err := g.works(g.last, ts); err != nil {
			return errors.Join(err, closeAll(ts))
		}
		after(4 * g.idle)
	}
	return errors.Join(closeAll(ts), g.worksOnce(g.next()))
}

// receiveDuringRest has two ranks wait for each other, first the lower and then the higher one, while the pair rests or would.
func receiveDuringRest(g *group) error {
	ts, err := g.rested()
	if err != nil {
		return err
	}
	for _, way := range [][2]int{{0, 2}, {2, 0}} {
		to, from := way[0], way[1]
		got := make([]byte, 5)
		posted := ts[to].Post(from, envelope(7), got)
		after(5 * g.idle)
		err := errors.Join(ts[from].Send(g.ctx, to, envelope(7), []byte("hello")), posted.Wait(g.ctx))
		if err != nil || string(got) != "hello" {
			return errors.Join(fmt.Errorf("rank %d received %q from %d: %w", to, got, from, err), closeAll(ts))
		}
	}
	return errors.Join(closeAll(ts), g.worksOnce(g.next()))
}

// aboutToRest calls try at moments at which pairs that were used before are about to rest.
func (g *group) aboutToRest(try func(i int) error) error {
	for i := range 4 * moments {
		after(2*g.idle + time.Duration(i-2*moments)*g.atOnce/400)
		if err := try(i); err != nil {
			return fmt.Errorf("moment %d: %w", i, err)
		}
	}
	return nil
}

// messagesWhileResting uses all pairs at moments at which they begin to rest.
func messagesWhileResting(g *group) error {
	v := g.next()
	ts, err := g.enter(v)
	if err != nil {
		return err
	}
	err = g.works(v, ts)
	if err == nil {
		err = g.aboutToRest(func(int) error { return g.works(v, ts) })
	}
	return errors.Join(err, closeAll(ts), g.worksOnce(g.next()))
}

// endWhileResting ends views at moments at which pairs begin to rest: all ranks close, or one revokes before.
func endWhileResting(g *group) error {
	return g.aboutToRest(func(i int) error {
		v := g.next()
		ts, err := g.enter(v)
		if err != nil {
			return err
		}
		err = g.works(v, ts)
		after(2*g.idle + time.Duration(i-2*moments)*g.atOnce/400)
		if i%2 == 1 {
			ts[i%4].Revoke(errors.New("enough"))
		}
		return errors.Join(err, closeAll(ts))
	})
}

// revokedDuringRest revokes a view whose pairs rest. All ranks hear of that.
func revokedDuringRest(g *group) error {
	ts, err := g.rested()
	if err != nil {
		return err
	}
	began := time.Now()
	ts[0].Revoke(errors.New("enough"))
	told := each(len(ts), func(rank int) error {
		if err := onlyOf(ts[rank].Recv(g.ctx, rank, envelope(1), nil), 0, true); err != nil && rank > 0 {
			return err
		}
		return nil
	})
	return errors.Join(told, g.soon("a revocation came", began), closeAll(ts), g.worksOnce(g.next()))
}

// closedDuringRest waits for messages from a rank, and sends to it, when it has closed the view during a rest.
func closedDuringRest(g *group) error {
	for _, closed := range []int{0, 3} {
		ts, err := g.rested()
		if err != nil {
			return err
		}
		other := 3 - closed
		err = ts[closed].Close()
		began := time.Now()
		lost := ts[other].Recv(g.ctx, closed, envelope(8), nil)
		err = errors.Join(err, onlyOf(lost, closed, false), g.soon("a rank was closed", began), closeAll(ts))
		if err != nil {
			return err
		}
	}
	return g.worksOnce(g.next())
}

// diedDuringRest waits for messages from a rank that dies during a rest.
func diedDuringRest(g *group) error {
	ts, err := g.rested()
	if err != nil {
		return err
	}
	g.kill(g.end(g.last, 3))
	began := time.Now()
	err = onlyOf(ts[0].Recv(g.ctx, 3, envelope(8), nil), 3, false)
	return errors.Join(err, g.soon("a rank died", began), closeAll(ts), g.worksOnce(g.next(2, 0, 1)))
}
