package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/internal/wire"
)

// Config says how a Mesh behaves. Only Job is required.
type Config struct {
	// Job is the name of the job, at most MaxJob bytes. Only peers of one job can be in one view.
	Job string
	// Path is how the data of this end may travel.
	Path Path
	// KernelID is equal at ends that share a kernel, a network namespace and a user; such ends may
	// share memory. It is zero where this is not known.
	KernelID [32]byte
	// Plan says which pairs have lanes from the beginning of a view; nil is the usual plan.
	Plan Plan
}

// MaxJob is the longest name of a job, in bytes.
const MaxJob = wire.MaxJob

// Path says how data may travel. A stream uses only paths that both of its sides allow. With
// ShmPath, Connect fails if memory cannot be shared. With the other Paths the mesh uses a slower
// path instead, and event.Path.Why has the reason.
type Path uint8

// The values of Path. They are part of formats on the wire.
const (
	AutoPath   Path = iota // the fastest path that works
	ShmPath                // shared memory only
	UnixPath               // Unix sockets within a host, direct connections between hosts
	DirectPath             // direct connections
	StreamPath             // streams of the carrier's connections
	paths                  // the number of paths
)

// pathNames are the names by which users choose a Path, in the order of the constants.
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
//
// Mesh itself only connects its parts. Each part has its own lock, or none, and releases it before
// it calls another part. All parts share the lifetime of the mesh.
type Mesh struct {
	cfg      Config // never changed after New
	id       elastic.ID
	carrier  Carrier
	life     *lifetime
	events   *eventQueue   // what elastic reads: control messages, and which peers are up
	controls *controlPlane // the control streams
	requests *requests     // requests and their answers
	views    *viewTable    // the views that are entered, in use, or over
	// lanes has the streams of the views. A stream outlives its view.
	lanes  *lanes
	binder *binder     // binds lanes to views
	memory *hostMemory // files and memory that are shared with other processes of the host
}

// New returns a Mesh over a carrier, and begins to accept the streams that others open. The Mesh
// owns the carrier from now on.
func New(c Carrier, cfg Config) *Mesh {
	if cfg.Plan == nil {
		cfg.Plan = sparse
	}
	m := &Mesh{cfg: cfg, id: c.ID(), carrier: c, life: newLifetime(), lanes: newLanes()}
	m.events = newEventQueue(m.down)
	m.controls = newControlPlane(c, m.life, m.events)
	m.requests = newRequests(c, m.life)
	m.views = newViewTable(cfg.Job, m.life)
	m.binder = &binder{cfg: &m.cfg, carrier: c, life: m.life, views: m.views, lanes: m.lanes}
	m.memory = newHostMemory(m.id, &m.cfg, m.life)
	// The carrier may call take at once, so all parts are in place before.
	c.Handle(m.take)
	return m
}

// ID returns the identity of this end.
func (m *Mesh) ID() elastic.ID { return m.id }

// EndsReportedBy tells this end that a launcher reports the ends of all its peers at once, and not
// only when the kernel has freed their memory. Then sessions within the host that have only peers of
// this launcher need no death watch. Call it before the first Connect.
func (m *Mesh) EndsReportedBy(launcher string) { m.memory.launcher = launcher }

// Introduce implements elastic.Network.
func (m *Mesh) Introduce(members []elastic.Member) error { return m.carrier.Introduce(members) }

// Connect implements elastic.Network.
func (m *Mesh) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := m.connect(ctx, v, self)
	if err != nil {
		return nil, fmt.Errorf("mesh: connect rank %d of %v: %w", self, v, err)
	}
	return t, nil
}

// Send implements elastic.Network. If there is no stream with the peer, it connects first. It
// returns elastic.ErrGone as soon as it is certain that the peer is gone. In the first second after
// a peer was introduced this is never certain. In that second, and while the peer does not answer
// or does not know this host, Send tries again until ctx ends.
//
// If no message has been acknowledged for stuckTime, and nothing else has come from the peer, Send
// closes the connection and makes a new one: TCP retransmits ever more rarely, so it would
// notice late that the network works again.
func (m *Mesh) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	if err := m.controls.send(ctx, to, msg); err != nil {
		return fmt.Errorf("mesh: send to %s: %w", to.Short(), err)
	}
	return nil
}

// Redial implements elastic.Network.
func (m *Mesh) Redial(to elastic.ID) { m.life.run(func() { m.carrier.HangUp(to) }) }

// Events implements elastic.Network.
func (m *Mesh) Events() <-chan elastic.PeerEvent { return m.events.out }

// Request implements elastic.Network. Errors of the peer, also errBusy, are returned when the
// answer is read. If the answer is not read for progressTime, the peer breaks it off.
func (m *Mesh) Request(ctx context.Context, to elastic.ID, request []byte) (io.ReadCloser, error) {
	a, err := m.requests.request(ctx, to, request)
	if err != nil {
		return nil, fmt.Errorf("mesh: request to %s: %w", to.Short(), err)
	}
	return a, nil
}

// Serve implements elastic.Network. The bytes that answer writes are sent in pieces of 64 KiB.
func (m *Mesh) Serve(answer func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) {
	m.requests.serve(answer)
}

// take handles a stream that a peer has opened. The carrier calls it in a goroutine of its own,
// which reads the stream to its end. Before the stream is bound to a view, the peer is known by its
// proven ID only.
func (m *Mesh) take(k Kind, s Stream) {
	if !m.life.begin() {
		_ = s.Reset() // the carrier is about to close
		return
	}
	defer m.life.working.Done()
	switch k {
	case Control:
		m.controls.accept(s)
	case Data, Urgent:
		m.binder.accept(k, s)
	case Bulk:
		m.requests.accept(s)
	default:
		_ = s.Reset()
	}
}

// Close ends all streams at once, closes the carrier, and waits for the goroutines of the mesh. The
// caller must have closed the transports that Connect has returned: the peers of an open transport
// would see a crash.
func (m *Mesh) Close() error {
	if !m.life.end() {
		return nil
	}
	m.events.stop()
	m.lanes.close()
	err := m.carrier.Close()
	m.life.working.Wait()
	return errors.Join(err, m.memory.close())
}

// setDeadline sets both deadlines of a stream. The zero time removes them. A time that has passed
// ends reads and writes that are under way.
func setDeadline(s Stream, t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}
