package simnet

import "time"

// pipe is one direction of a stream. Frames arrive in the order in which they were sent, except
// loose frames. The network's mu guards all fields.
type pipe struct {
	link  *link
	plane Plane
	from  *stream // the writing side; nil for frames that belong to no stream

	queue   []frame // frames that wait for transmission
	through int     // transmitted bytes of the first frame in queue
	flying  int     // frames in flight
	last    time.Time
	held    []frame // frames that arrived at a cut

	sent, expected uint64
	outOfOrder     map[uint64]frame // frames that arrived before earlier ones; nil before the first such frame

	used int  // bytes that were accepted and not read yet
	owed int  // bytes that were read but not acknowledged, because of a cut
	dead bool // the writer sends nothing more
}

// idle reports whether the pipe is empty.
func (p *pipe) idle() bool { return len(p.queue) == 0 && p.flying == 0 && len(p.held) == 0 }

// shift removes and returns the first element of a queue. It clears the element's place, so that the element can be collected,
// because tests measure memory in use.
func shift[T any](queue *[]T) (first T) {
	q := *queue
	first, q[0] = q[0], first
	*queue = q[1:]
	return first
}

// inOrder takes a frame that has arrived, and returns the frames that can be delivered now.
func (p *pipe) inOrder(f frame) []frame {
	if f.loose || f.final {
		return []frame{f}
	}
	if f.seq != p.expected {
		if p.outOfOrder == nil {
			p.outOfOrder = make(map[uint64]frame)
		}
		p.outOfOrder[f.seq] = f
		return nil
	}
	out := []frame{f}
	for p.expected++; ; p.expected++ {
		next, ok := p.outOfOrder[p.expected]
		if !ok {
			return out
		}
		delete(p.outOfOrder, p.expected)
		out = append(out, next)
	}
}

// limitLocked returns how many unread bytes the pipe accepts: the window, and with a bandwidth also
// the bytes in flight.
func (p *pipe) limitLocked() int {
	k := p.link.rules[p.plane].link
	return p.link.net.config.Window + int(float64(k.Bandwidth)*(k.Delay+k.Lag).Seconds())
}

// chunkSize is the maximum size of a frame. With a bandwidth a frame has at most a quantum, so that bytes arrive at the rate of
// the link.
const chunkSize = 256 << 10

// roomLocked returns how many of want bytes the pipe accepts now. It returns 0 instead of a small
// number, so that a full window does not move byte by byte. If whole is set, it returns want or 0:
// want if all bytes fit or the pipe is empty.
func (p *pipe) roomLocked(want int, whole bool) int {
	limit := p.limitLocked()
	free := limit - p.used
	if whole {
		if p.used == 0 || want <= free {
			return want
		}
		return 0
	}
	if p.used > 0 && free < min(want, limit/4) {
		return 0
	}
	most := chunkSize
	if p.link.rules[p.plane].link.Bandwidth > 0 {
		most = quantum
	}
	return max(1, min(want, free, most))
}

// freeLocked frees room for n bytes and wakes the writer.
func (p *pipe) freeLocked(n int) {
	p.used -= n
	if p.from != nil {
		p.from.writable.Broadcast()
	}
}

// readLocked is called when the receiver has read n bytes. If the opposite direction is cut, the
// sender gets the acknowledgement when the cut is healed.
func (p *pipe) readLocked(n int) {
	if p.link.net.cutLocked(p.link.to, p.link.from, p.plane) {
		p.owed += n
		return
	}
	p.freeLocked(n)
}

// dropLocked drops the frames that are not transmitted yet.
func (p *pipe) dropLocked() {
	p.queue, p.through = nil, 0
	p.used = 0
}
