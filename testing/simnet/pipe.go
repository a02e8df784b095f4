package simnet

import "time"

// pipe is a stream in one direction: frames come in the order in which they were sent,
// but for loose ones. All fields are guarded by the network's mu.
type pipe struct {
	link  *link
	plane Plane
	from  *stream // whose writing it is; nil for what no stream sends

	queue   []frame // to be transmitted
	through int     // bytes of the first of queue that are
	flying  int     // frames on the way
	last    time.Time
	held    []frame // that found the link cut

	sent, expected uint64
	early          map[uint64]frame // that came before others sent before them; nil before the first

	used int  // bytes taken in and not yet read
	owed int  // bytes that were read, of which a cut keeps the news
	dead bool // nothing more is sent
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
	if f.seq != p.expected {
		if p.early == nil {
			p.early = make(map[uint64]frame)
		}
		p.early[f.seq] = f
		return nil
	}
	out := []frame{f}
	for p.expected++; ; p.expected++ {
		next, ok := p.early[p.expected]
		if !ok {
			return out
		}
		delete(p.early, p.expected)
		out = append(out, next)
	}
}

// limitLocked is how many bytes the pipe takes in: the window, and with a bandwidth what
// is on the way besides.
func (p *pipe) limitLocked() int {
	k := p.link.rules[p.plane].link
	return p.link.net.config.Window + int(float64(k.Bandwidth)*(k.Delay+k.Lag).Seconds())
}

// chunkSize is how many bytes of a stream travel in one frame at most. Where there is a
// bandwidth a frame is a quantum of it, so that bytes come at the pace of the link.
const chunkSize = 256 << 10

// roomLocked returns how many of want bytes the pipe takes in now. Where it takes few it
// takes none, until more have been read: else a full window would move byte by byte. A
// whole write is taken in at once, as soon as that fits or the pipe is empty.
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

// freeLocked gives room for n bytes and lets the writer look again.
func (p *pipe) freeLocked(n int) {
	p.used -= n
	if p.from != nil {
		p.from.writable.Broadcast()
	}
}

// readLocked notes at the receiver that n bytes have been read. A sender that cannot be told,
// because the way back is cut, learns it when that heals.
func (p *pipe) readLocked(n int) {
	if p.link.net.cutLocked(p.link.to, p.link.from, p.plane) {
		p.owed += n
		return
	}
	p.freeLocked(n)
}

// dropLocked forgets what is not yet on the wire.
func (p *pipe) dropLocked() {
	p.queue, p.through = nil, 0
	p.used = 0
}
