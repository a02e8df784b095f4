package elastic

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

// crowd is a simulated control network for many members, in virtual time. The drivers, sendQueues,
// control messages and machines are the production code; there is no data plane.
type crowd struct {
	ports sync.Map // *port by ID
	rng   [64]struct {
		sync.Mutex
		*rand.Rand
	}
	loss    float64
	letters atomic.Int64
	bytes   atomic.Int64
}

// port is the access of one member to a crowd. It implements Network.
type port struct {
	*crowd
	id     ID
	at     int
	events chan PeerEvent
	closed atomic.Bool
	silent atomic.Bool  // the member's host has lost its power, so senders get no error
	bytes  atomic.Int64 // number of bytes sent
	peers  sync.Map     // the IDs to which the member has sent messages
}

// newCrowd returns a network that loses the given share of the messages.
func newCrowd(loss float64) *crowd {
	c := &crowd{loss: loss}
	for i := range c.rng {
		c.rng[i].Rand = rand.New(rand.NewPCG(uint64(i), 1))
	}
	return c
}

// perLetter is the overhead of a control message on the wire, in bytes: the length of a frame, an
// acknowledgement, TLS, TCP and IP.
const perLetter = 4 + 22 + 40

// Send implements Network. Messages take 0.2 to 2 ms, and some are lost.
func (p *port) Send(_ context.Context, to ID, msg []byte) error {
	if p.closed.Load() {
		return errors.New("closed")
	}
	n := int64(len(msg) + perLetter)
	p.letters.Add(1)
	p.crowd.bytes.Add(n)
	p.bytes.Add(n)
	p.peers.Store(to, true)
	found, ok := p.ports.Load(to)
	if !ok {
		return fmt.Errorf("%s: %w", to.Short(), ErrGone)
	}
	other := found.(*port)
	lost, delay := p.fate()
	switch {
	case lost || other.silent.Load():
		return nil
	case other.closed.Load():
		return fmt.Errorf("%s: %w", to.Short(), ErrGone)
	}
	time.AfterFunc(delay, func() { other.deliver(p.id, msg) })
	return nil
}

// fate draws whether a message is lost, and the delay of the message.
func (p *port) fate() (lost bool, delay time.Duration) {
	r := &p.rng[p.at%len(p.rng)]
	r.Lock()
	defer r.Unlock()
	return r.Float64() < p.loss, 200*time.Microsecond + time.Duration(r.IntN(1800))*time.Microsecond
}

// deliver handles the arrival of a message.
func (p *port) deliver(from ID, msg []byte) {
	if p.closed.Load() {
		return
	}
	select {
	case p.events <- PeerEvent{Peer: from, Kind: PeerMessage, Data: msg}:
	default: // a full queue loses the message
	}
}

func (p *port) Events() <-chan PeerEvent { return p.events }
func (p *port) Redial(ID)                {}
func (p *port) Introduce([]Member) error { return nil }
func (p *port) Request(context.Context, ID, []byte) (io.ReadCloser, error) {
	return nil, errors.New("no requests here")
}
func (p *port) Serve(func(context.Context, ID, []byte, io.Writer) error) {}
func (p *port) Connect(context.Context, View, int) (transport.Transport, error) {
	return nil, errors.New("no data plane here")
}

// hashKeys are fast fake keys with signatures of the length of ed25519.
type hashKeys ID

func (k hashKeys) Sign(text []byte) []byte {
	h := fnv.New128a()
	h.Write([]byte(k))
	h.Write(text)
	return append(h.Sum(nil), make([]byte, 48)...)
}

func (h hashKeys) Verify(id ID, text, signature []byte) bool {
	return string(hashKeys(id).Sign(text)) == string(signature)
}

// sharedViews has one copy of each view for all members of a swarm, so the memory of a swarm does
// not grow with the square of the number of members.
type sharedViews struct {
	machines *member.Views // of the membership machines

	mu    sync.Mutex // guards the fields below
	views map[member.Hash]View
	line  []member.Hash // keys of views, the oldest first
}

// keptViews is the number of views that sharedViews keeps.
const keptViews = 160

func newSharedViews() *sharedViews {
	return &sharedViews{machines: member.NewViews(keptViews), views: make(map[member.Hash]View)}
}

// convert returns the same as fromView, and calls fromView once for each view.
func (s *sharedViews) convert(mv member.View, old View) View {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The hash covers the whole view, so equal hashes mean equal views.
	if v, ok := s.views[mv.Hash()]; ok {
		return v
	}
	v := fromView(mv, old)
	s.views[mv.Hash()] = v
	// For a member that lags behind by more than keptViews views, a dropped view is converted
	// again.
	if s.line = append(s.line, mv.Hash()); len(s.line) > keptViews {
		delete(s.views, s.line[0])
		s.line = s.line[1:]
	}
	return v
}

// swarm is a group of members on a crowd.
type swarm struct {
	*crowd
	cfg     *Config
	shared  *sharedViews
	rng     *rand.Rand
	next    int       // number that the next peer gets
	drivers []*driver // drivers of the live members that are not leaving, and of newcomers
	leavers sync.WaitGroup
}

func newSwarm(n int) *swarm {
	s := &swarm{crowd: newCrowd(0.001), rng: rand.New(rand.NewPCG(uint64(n), 1)),
		cfg: &Config{Sink: event.Discard{}, MinPeers: 1}, shared: newSharedViews()}
	var first []Member
	var ports []*port
	for range n {
		m := s.describe()
		first, ports = append(first, m), append(ports, s.listen(m.ID)) // before the first member starts, so that none gets ErrGone
	}
	view, err := firstView(first, nil)
	if err != nil {
		panic(err)
	}
	for i, m := range first {
		s.start(m, ports[i], &view)
	}
	return s
}

// describe returns the next peer, with a description of realistic length. Eight peers share a host.
func (s *swarm) describe() Member {
	i := s.next
	s.next++
	host := i / 8
	return Member{ID: ID(fmt.Sprintf("12D3KooW%036d%08d", 7*i, i)), Index: i % 8, Host: fmt.Sprintf("node-%04d", host),
		Launcher: fmt.Sprintf("12D3KooW%044d", host), Process: fmt.Sprintf("%d/%d", 10000+i, 88000000+i),
		Machine: fmt.Sprintf("%032d", host),
		Addrs:   []string{fmt.Sprintf("/ip4/10.%d.%d.%d/tcp/%d", host>>16, host>>8&255, host&255, 30000+i%8)}}
}

// listen adds a port for a peer.
func (s *swarm) listen(id ID) *port {
	p := &port{crowd: s.crowd, id: id, at: s.next, events: make(chan PeerEvent, 1024)}
	s.ports.Store(id, p)
	return p
}

// start starts a member of the first view, or a newcomer.
func (s *swarm) start(self Member, p *port, first *member.View) *driver {
	d := idleDriver(s.cfg, Endpoint{Self: self, Network: p, Keys: hashKeys(self.ID)}, func(uint64, event.Body) {})
	d.views, d.convert = s.shared.machines, s.shared.convert
	if first != nil {
		if err := d.begin(*first); err != nil {
			panic(err)
		}
		d.drain()
	}
	go d.run()
	s.drivers = append(s.drivers, d)
	return d
}

// port returns the port of a driver.
func (d *driver) port() *port { return d.ep.Network.(*port) }

// take chooses a random member that is in a view, and removes it from drivers.
func (s *swarm) take() *driver {
	for {
		i := s.rng.IntN(len(s.drivers))
		if d := s.drivers[i]; d.in(func(s status) bool { return s.phase == inside }) {
			s.drivers = slices.Delete(s.drivers, i, i+1)
			return d
		}
	}
}

// in reports whether holds returns true for the driver's status.
func (d *driver) in(holds func(status) bool) bool {
	s, _ := d.status.now()
	return holds(s)
}

// await waits until holds returns true for the driver's status, and returns the elapsed time.
func (d *driver) await(holds func(status) bool) time.Duration {
	begun := time.Now()
	for s, changed := d.status.now(); !holds(s) && s.phase != closed; s, changed = d.status.now() {
		<-changed
	}
	return time.Since(begun)
}

// kill ends a member as SIGKILL does. With silent set it ends the member as a loss of its host's
// power does.
func (s *swarm) kill(d *driver, silent bool) {
	d.port().silent.Store(silent)
	d.port().closed.Store(true)
	d.stop()
}

// leave makes a member leave. The member stays for a while to answer members that lag behind.
func (s *swarm) leave(d *driver) {
	d.leave(false)
	s.leavers.Go(func() {
		d.await(func(s status) bool { return s.phase > inside })
		<-time.After(time.Second)
		s.kill(d, false)
	})
}

// join starts a newcomer. The newcomer asks four members for admission, repeatedly, until it is in
// a view.
func (s *swarm) join() *driver {
	self := s.describe()
	d := s.start(self, s.listen(self.ID), nil)
	var contacts []*driver
	for len(contacts) < 4 {
		if c := s.drivers[s.rng.IntN(len(s.drivers))]; c.in(func(s status) bool { return s.phase == inside }) {
			contacts = append(contacts, c)
		}
	}
	s.leavers.Go(func() {
		ctx, cancel := d.status.while(d.loop.ctx, func(s status) bool { return s.phase == outside })
		defer cancel()
		for ctx.Err() == nil {
			var ids []ID
			for _, c := range contacts {
				c.loop.do(func() { c.admitter.newcomers.note(offer{Member: d.ep.Self}, Entry{}) })
				ids = append(ids, c.ep.Self.ID)
			}
			if err := d.ask(ids); err != nil {
				panic(err)
			}
			select {
			case <-time.After(minLease / 2):
			case <-ctx.Done():
			}
		}
	})
	return d
}

// close stops all members.
func (s *swarm) close() {
	for _, d := range s.drivers {
		d.port().closed.Store(true)
		d.loop.cancel()
	}
	for _, d := range s.drivers {
		d.stop()
	}
	s.leavers.Wait()
}
