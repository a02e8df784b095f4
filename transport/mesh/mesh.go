package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

// Config says how a Mesh behaves. Only Job is required.
type Config struct {
	// Job is compared when a view is entered; at most MaxJob bytes.
	Job string
	// Path is how the data of this end may travel.
	Path Path
	// Site is equal at ends that share a kernel, a network namespace and a user; such ends may
	// share memory. It is zero where this is not known.
	Site [32]byte
	// Plan says which pairs have lanes from the beginning of a view; nil is the usual plan.
	Plan Plan
}

// MaxJob is the longest name of a job, in bytes.
const MaxJob = wire.MaxJob

// Path is how data may travel. A stream uses only what the Paths of both sides allow.
type Path uint8

// The values of Path. They are part of formats on the wire.
const (
	AutoPath   Path = iota // the best way there is
	ShmPath                // shared memory and nothing else
	UnixPath               // Unix sockets within a host, direct connections between hosts
	DirectPath             // a connection of its own
	StreamPath             // streams of the carrier's connections
	paths                  // the number of paths
)

// pathNames are the names by which users choose a Path, in its order.
func pathNames() []string { return []string{"auto", "shm", "unix", "direct", "p2p"} }

// String returns the name by which users choose p.
func (p Path) String() string {
	if names := pathNames(); int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("path(%d)", uint8(p))
}

// Paths lists the names of all Paths, in their order.
func Paths() []string { return pathNames() }

// sharesMemory reports whether shared memory is wanted.
func (p Path) sharesMemory() bool { return p == AutoPath || p == ShmPath }

// Mesh is one end of the session protocol. It implements elastic.Network. All methods are
// safe for concurrent use.
type Mesh struct {
	cfg      Config
	id       elastic.ID
	carrier  Carrier
	links    *links
	lanes    *lanes
	requests *requestServer
	begun    atomic.Bool // this end has been in a session

	neighbours *neighbours
	spare      spare

	done    chan struct{}   // closed by Close
	life    context.Context // ended by Close, with end
	end     context.CancelFunc
	working sync.WaitGroup // goroutines of the mesh itself

	mu       sync.Mutex
	closed   bool
	controls map[elastic.ID][]*controlStream // the streams that can be written to
	opening  map[elastic.ID]chan struct{}    // closed when the attempt to open a control stream has ended
	attempts map[[32]byte]*attempt           // the views that are being entered or are in use, by hash
	past     []pastView                      // the views that are over, the latest last
	parked   []*parkedStream                 // streams for views that this end has not entered, oldest first
	floor    uint64                          // epochs below floor are over
}

// New returns a Mesh over a carrier, and begins to accept the streams that others open. The Mesh owns
// the carrier from now on.
func New(c Carrier, cfg Config) *Mesh {
	if cfg.Plan == nil {
		cfg.Plan = sparse
	}
	m := &Mesh{
		cfg: cfg, id: c.ID(), carrier: c, lanes: newLanes(), requests: newRequestServer(), done: make(chan struct{}),
		neighbours: newNeighbours(c.ID()),
		controls:   make(map[elastic.ID][]*controlStream),
		opening:    make(map[elastic.ID]chan struct{}),
		attempts:   make(map[[32]byte]*attempt),
	}
	m.life, m.end = context.WithCancel(context.Background())
	m.links = newLinks(m.down)
	c.Handle(m.take)
	return m
}

// ID returns the identity of this end.
func (m *Mesh) ID() elastic.ID { return m.id }

// Introduce implements elastic.Network.
func (m *Mesh) Introduce(members []elastic.Member) error { return m.carrier.Introduce(members) }

// take handles a stream that a peer has opened.
func (m *Mesh) take(k Kind, s Stream) {
	if !m.begin() {
		_ = s.Reset() // the carrier is about to close
		return
	}
	defer m.working.Done()
	switch k {
	case Control:
		m.acceptControl(s)
	case Data, Urgent:
		m.acceptLine(k, s)
	case Bulk:
		m.acceptBulk(s)
	default:
		_ = s.Reset()
	}
}

// begin counts one more goroutine that Close waits for. It returns false if the mesh is closed.
func (m *Mesh) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.working.Add(1)
	return true
}

// Close ends all streams at once, closes the carrier, and waits for the goroutines of the mesh. Close
// the transports that Connect has returned before: to the peers of an open one it looks like a crash.
func (m *Mesh) Close() error {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	m.mu.Unlock()
	if !first {
		return nil
	}
	close(m.done)
	m.end()
	m.links.stop()
	m.lanes.close()
	err := m.carrier.Close()
	m.working.Wait()
	return errors.Join(err, m.spare.close(), m.neighbours.shut())
}

// final marks an error after which it is useless to try again.
type final struct{ error }

// Unwrap returns the error itself.
func (f final) Unwrap() error { return f.error }

// isFinal reports whether it is useless to try again after err.
func isFinal(err error) bool {
	return errors.As(err, new(final)) || errors.Is(err, elastic.ErrGone) || errors.Is(err, ErrBanned) ||
		errors.Is(err, ErrBadID)
}

// The pauses between attempts to reach a peer.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it succeeds, the peer refuses for good or is gone, the mesh closes, or
// ctx ends. The first call may fail as the peer has not been told of this end yet: then it ends the
// stream, and accepts a later one.
func (m *Mesh) retry(ctx context.Context, f func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f()
		if err == nil || isFinal(err) {
			return err
		}
		if err := m.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

// pause waits for d after an attempt that failed with the error last.
func (m *Mesh) pause(ctx context.Context, d time.Duration, last error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-m.done:
		return errClosed()
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
	case <-timer.C:
		return nil
	}
}

// errClosed returns the error of calls of a mesh that is closed.
func errClosed() error { return fmt.Errorf("%w: host closed", transport.ErrClosed) }

// setDeadline sets both deadlines of a stream.
func setDeadline(s Stream, t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}
