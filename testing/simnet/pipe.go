package simnet

import (
	"context"
	"errors"
	"time"
)

// errEnded: the stream is over; its owner knows why.
var errEnded = errors.New("stream has ended")

// pipe is a stream in one direction: frames come in the order in which they were sent,
// but for loose ones. All fields are guarded by the network's mu.
type pipe struct {
	link  *link
	plane Plane

	queue   []frame // to be transmitted
	through int     // bytes of the first of queue that are
	flying  int     // frames on the way
	last    time.Time
	held    []frame // that found the link cut

	sent, expected uint64
	early          map[uint64]frame // that came before others sent before them

	used   int           // bytes taken in and not yet read
	owed   int           // bytes that were read, of which a cut keeps the news
	room   chan struct{} // closed and replaced when used has shrunk or the stream ends
	dead   bool          // its end was sent
	broken bool          // nothing comes any more
}

// idle reports that nothing is in the pipe.
func (p *pipe) idle() bool { return len(p.queue) == 0 && p.flying == 0 && len(p.held) == 0 }

// shift takes the first element out of a queue. What it refers to can be collected, as tests
// measure what is in use.
func shift[T any](queue *[]T) (first T) {
	q := *queue
	first, q[0] = q[0], first
	*queue = q[1:]
	return first
}

// inOrder takes in a frame and returns those that can be delivered now.
func (p *pipe) inOrder(f frame) []frame {
	if f.loose || f.final {
		return []frame{f}
	}
	p.early[f.seq] = f
	var out []frame
	for {
		next, ok := p.early[p.expected]
		if !ok {
			return out
		}
		delete(p.early, p.expected)
		p.expected++
		out = append(out, next)
	}
}

// limitLocked is how many bytes the pipe takes in: the window, and with a bandwidth what
// is on the way besides.
func (p *pipe) limitLocked() int {
	k := p.link.rules[p.plane].link
	return p.link.net.config.Window + int(float64(k.Bandwidth)*(k.Delay+k.Lag).Seconds())
}

// freeLocked gives room for n bytes and lets those look again who wait for it.
func (p *pipe) freeLocked(n int) {
	p.used -= n
	close(p.room)
	p.room = make(chan struct{})
}

// endLocked ends the stream at its sender. What was sent before comes all the same.
func (p *pipe) endLocked() {
	if !p.dead {
		p.dead = true
		p.freeLocked(0)
	}
}

// breakLocked ends the stream at once.
func (p *pipe) breakLocked() {
	p.broken = true
	p.queue, p.held = nil, nil
	p.endLocked()
}

// read notes at the receiver that n bytes have been read. A sender that cannot be told,
// because the way back is cut, learns it when that heals.
func (p *pipe) read(n int) {
	net := p.link.net
	net.mu.Lock()
	defer net.mu.Unlock()
	if net.cutLocked(p.link.to, p.link.from, p.plane) {
		p.owed += n
		return
	}
	p.freeLocked(n)
}

// write waits for room and submits the frame. stop1 and stop2, which may be nil, end the
// waiting with errEnded, as does the end of the stream.
func (p *pipe) write(ctx context.Context, f frame, stop1, stop2 <-chan struct{}) error {
	for {
		room, err := p.tryWrite(f)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stop1:
			return errEnded
		case <-stop2:
			return errEnded
		}
	}
}

// tryWrite submits the frame, or returns the channel that is closed when it is time to
// try again.
func (p *pipe) tryWrite(f frame) (room <-chan struct{}, err error) {
	p.link.net.mu.Lock()
	defer p.link.net.mu.Unlock()
	if p.dead {
		return nil, errEnded
	}
	if p.used > 0 && p.used+f.size > p.limitLocked() {
		return p.room, nil
	}
	p.used += f.size
	p.link.submitLocked(p, f)
	return nil, nil
}
