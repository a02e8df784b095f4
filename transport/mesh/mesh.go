package mesh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/elrun/elrun/collective"
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
	// Answer answers the questions that carriers ask each other (Ask). Nil refuses them. ctx ends when the
	// other end has closed the answer.
	Answer func(ctx context.Context, from elastic.ID, question []byte, w *bufio.Writer) error
	// Memory is the memory in which vectors of this process lie that other processes of its host may read
	// and write. It stays open, and may serve one mesh after the other. Nil lets the mesh make its own.
	Memory Memory
	// Plan says which pairs have lanes from the beginning of a view; nil is the usual plan.
	Plan Plan
}

// Memory is memory of this process for vectors. It is made by package launch for a sidecar, whose program
// has a part of it; with any other implementation the mesh makes its own.
type Memory interface {
	// File returns the file that other processes map.
	File() *os.File
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
	asking   *requests     // questions of carriers and their answers
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
	m.requests = newRequests(c, Bulk, m.life)
	m.asking = newRequests(c, Question, m.life)
	m.asking.serve(cfg.Answer)
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

// connect makes the transport of a view. It gathers two streams per planned pair, by dialling peers
// and by waiting for the dials of peers, until all are there or one cannot be made. There is no
// barrier at the end: a member whose attempt fails resets its streams, which revokes the view at
// the members that have begun it.
func (m *Mesh) connect(ctx context.Context, v elastic.View, self int) (*Transport, error) {
	// The caller derives self from the view. With a wrong self the hellos would state another rank.
	if self < 0 || self >= len(v.Members) || v.Members[self].ID != m.id {
		return nil, fmt.Errorf("%w: %s does not have this rank", collective.ErrArgument, m.id.Short())
	}
	if err := m.Introduce(v.Members); err != nil {
		return nil, err
	}
	viewer, _ := m.carrier.(Viewer)
	if viewer != nil {
		if err := viewer.Entering(v); err != nil {
			return nil, err
		}
	}
	// The inner ctx ends with the dials. The ranks of a host agree on shared memory after that, so
	// start needs the outer ctx.
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := newAttempt(ctx, m.binder, v, self, m.cfg.Plan(v, self))
	if err := m.views.enter(a); err != nil {
		return nil, err
	}
	// Probes run beside the dials, because a higher rank that has died never dials this rank.
	m.probeMissing(a)
	a.dialAll()
	late := time.AfterFunc(bindTime, a.dialLate)
	defer late.Stop()
	select {
	case <-a.done:
	case <-ctx.Done():
		a.fail(a.blame(context.Cause(ctx)))
	case <-m.life.ctx.Done():
		a.fail(errClosed())
	}
	// Dials that still run are redundant: all planned streams are there, or the attempt has failed.
	cancel() // ends the dials
	for _, l := range a.requested {
		m.lanes.withdraw(a, l, true)
	}
	a.dials.Wait()
	if a.err != nil {
		m.views.forget(a)
		a.lazy.abandon(a.err)
		return nil, a.err
	}
	m.views.entered(a)
	m.events.reached(v)
	// Lanes with former members are of no use any more.
	m.lanes.retain(v)
	if viewer != nil {
		viewer.Entered(v)
	}
	return m.start(outer, a)
}

// start makes the transport of an attempt that has all planned streams.
func (m *Mesh) start(ctx context.Context, a *attempt) (*Transport, error) {
	s, err := m.memory.enter(ctx, a)
	if err == nil {
		return newTransport(a, s), nil
	}
	m.views.forget(a)
	a.lazy.abandon(err)
	// No later view of these members can succeed (hostMemory.unshared).
	if errors.Is(err, elastic.ErrNoView) {
		a.end(Stream.Close) // not Reset: the peers read the reason in bytes that were written before
	} else {
		a.end(Stream.Reset)
	}
	return nil, err
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

// Ask asks a question of the carrier at another end, which answers it by its Config.Answer. It is like
// Request, with limits of its own.
func (m *Mesh) Ask(ctx context.Context, to elastic.ID, question []byte) (io.ReadCloser, error) {
	a, err := m.asking.request(ctx, to, question)
	if err != nil {
		return nil, fmt.Errorf("mesh: ask %s: %w", to.Short(), err)
	}
	return a, nil
}

// Serve implements elastic.Network. The bytes that answer writes are sent in pieces of 64 KiB.
func (m *Mesh) Serve(answer func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) {
	if answer == nil {
		m.requests.serve(nil)
		return
	}
	m.requests.serve(func(ctx context.Context, from elastic.ID, request []byte, w *bufio.Writer) error {
		return answer(ctx, from, request, w)
	})
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
	case Question:
		m.asking.accept(s)
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

var errNotReached = errors.New("has not come yet")

// startGrace is how long Connect waits for a member that was never reached before, until it probes
// the member: all peers of a job start at about the same time, and some may not listen yet.
const startGrace = time.Second

// The higher rank of a pair opens its streams. A higher rank that is dead never opens them, and the
// lower rank would wait without a sign of that. So Connect opens a control stream to each higher
// rank with which there is none.

// probeMissing probes the higher ranks whose lanes are planned and with which there is no control
// stream. Lower ranks are dialled anyway.
func (m *Mesh) probeMissing(a *attempt) {
	for rank, member := range a.view.Members {
		if rank < a.self || !a.planned[rank] {
			continue
		}
		up, met := m.events.status(member.ID)
		switch {
		case up: // down is called when the control stream ends
		case met:
			m.probe(a, member.ID, 0)
		default:
			m.probe(a, member.ID, startGrace)
		}
	}
}

// down probes a peer whose control streams have ended, once for each attempt that may wait for the
// peer.
func (m *Mesh) down(id elastic.ID) {
	for _, a := range m.views.waitingFor(id) {
		m.probe(a, id, 0)
	}
}

// probe starts a goroutine that opens a control stream to a member, and fails the attempt if that
// is impossible. The goroutine first waits for the duration wait, in which the member may start.
func (m *Mesh) probe(a *attempt, id elastic.ID, wait time.Duration) {
	m.life.run(func() {
		err := m.life.pause(a.ctx, wait, errNotReached)
		if err == nil {
			_, err = m.controls.stream(a.ctx, id)
		}
		if err != nil && a.ctx.Err() == nil && !m.life.isOver() {
			a.fail(a.lost(a.view.Rank(id), err))
		}
	})
}
