package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/transport/mem"
)

// sharingNetwork is a network whose members are on one host and share memory. The memory of a member lasts as long as its process.
// If the field replaced is set, each session gets new memory instead, as if the process returned under another identity. Sessions
// must end without a revocation, because a revocation does not interrupt a wait in shared memory, which polls in real time.
type sharingNetwork struct {
	*mem.Network
	replaced bool       // each session replaces the memory
	since    uint64     // first epoch with shared memory
	full     elastic.ID // member whose memory is too small

	mu       sync.Mutex
	arenas   map[elastic.ID][]*shm.Arena // by member, the newest last
	sessions map[uint64]*sessionMemory   // by epoch
}

// sessionMemory is the shared memory of one session.
type sessionMemory struct {
	memory []byte
	arenas []*shm.Arena
	bytes  [][]byte
}

func (s *sharingNetwork) Endpoint(self elastic.Member) elastic.Endpoint {
	ep := s.Network.Endpoint(self)
	ep.Network = memberNetwork{ep.Network, s}
	return ep
}

// of returns the shared memory of a view. The first call makes it.
func (s *sharingNetwork) of(v elastic.View) (*sessionMemory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.sessions[v.Epoch]; h != nil {
		return h, nil
	}
	h := &sessionMemory{memory: shm.Ordinary(shm.Size(len(v.Members)))}
	for _, m := range v.Members {
		if len(s.arenas[m.ID]) == 0 || s.replaced {
			a, err := s.build(m.ID)
			if err != nil {
				return nil, err
			}
			s.arenas[m.ID] = append(s.arenas[m.ID], a)
		}
		a := s.arenas[m.ID][len(s.arenas[m.ID])-1]
		h.arenas, h.bytes = append(h.arenas, a), append(h.bytes, a.Bytes())
	}
	s.sessions[v.Epoch] = h
	return h, nil
}

// build makes the arena of a member. The arena of the member that the field full names has room for one vector only.
func (s *sharingNetwork) build(id elastic.ID) (*shm.Arena, error) {
	if id == s.full {
		return shm.NewArena(2 * 4 * memoryModelSize)
	}
	return shm.NewArena(1 << 24)
}

// now returns the newest arena of a member, and the earlier ones.
func (s *sharingNetwork) now(id elastic.ID) (newest *shm.Arena, older []*shm.Arena) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.arenas[id]
	return all[len(all)-1], all[:len(all)-1]
}

// memberNetwork is the network of one member.
type memberNetwork struct {
	elastic.Network
	network *sharingNetwork
}

func (m memberNetwork) Connect(ctx context.Context, v elastic.View, self int) (transport.Transport, error) {
	t, err := m.Network.Connect(ctx, v, self)
	if err != nil || v.Epoch < m.network.since {
		return t, err
	}
	h, err := m.network.of(v)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	segment, err := shm.ReadMachine().Attach(h.memory, h.bytes, len(v.Members), self)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	nothing := func() error { return nil }
	s := &transport.Shared{Memory: &shm.Attached{Segment: segment, Arena: h.arenas[self]}, Cause: nothing, Release: nothing}
	for rank := range v.Members {
		s.Ranks = append(s.Ranks, rank)
	}
	return memoryTransport{t, s}, nil
}

// memoryTransport is a transport that offers shared memory.
type memoryTransport struct {
	transport.Transport
	shared *transport.Shared
}

func (m memoryTransport) Shared() *transport.Shared { return m.shared }

func (m memoryTransport) Revoke(cause error) {
	m.Transport.Revoke(cause)
	m.shared.Memory.Revoke()
}

func (m memoryTransport) Close() error {
	m.shared.Memory.Revoke()
	return m.Transport.Close()
}

// pages returns how much memory of an arena is in use, in units of 512 bytes.
func pages(t *testing.T, a *shm.Arena) int64 {
	t.Helper()
	info, err := a.File().Stat()
	if err != nil {
		t.Error(err)
		return -1
	}
	return info.Sys().(*syscall.Stat_t).Blocks
}

// memoryModel is a model that checks in which memory its gradients are.
type memoryModel struct {
	*slope
	arena           func() *shm.Arena
	inside, outside int // numbers of microbatches with gradients inside and outside the arena
	broken          error
}

// memoryModelSize is the number of elements of a memoryModel's parameters. A vector of this size is too large to be sent inline in a
// message.
const memoryModelSize = 3 + 5000 + 1 + 6

func newMemoryModel(arena func() *shm.Arena) *memoryModel {
	m := &memoryModel{slope: new(slope), arena: arena}
	m.scale = 1
	for i, n := range []int{3, 5000, 1, 6} {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprintf("p%d", i), Shape: []int{n}, Data: make([]float32, n)})
	}
	return m
}

func (m *memoryModel) Model() trainer.Model { return trainer.ModelOf(m) }

func (m *memoryModel) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	if m.broken != nil {
		return 0, m.broken
	}
	in := 0
	for _, g := range grad {
		if m.arena != nil && m.arena().Ref(kernel.Bytes(g)) != 0 {
			in++
		}
	}
	switch in {
	case 0:
		m.outside++
	case len(grad):
		m.inside++
	default:
		return 0, fmt.Errorf("%d of %d gradients are in shared memory", in, len(grad))
	}
	return m.slope.Accumulate(grad, samples, done)
}

// sharingJob returns the configuration of a job with memoryModels. mode is "plain", "exact" or "int8", a lossy coding.
func sharingJob(mode string) trainer.Config {
	cfg := churning(40, mode == "exact")
	cfg.Gradients.BucketBytes = 1 << 10
	if mode == "int8" {
		cfg.Gradients.Compression = mode
	}
	return cfg
}

// leaveAt makes member 2 leave in the step at, so that there are at least two sessions. Member 0 waits in the following step until
// the view without member 2 is decided.
func (a *arena) leaveAt(x *actor, at int64) {
	x.cfg.Hooks.OnBegin = func(step int64) {
		switch {
		case step == at && x.self.Index == 2:
			x.killed.Store(true) // the peer has no result
			x.group.Leave()
		case step == at+1 && x.self.Index == 0:
			for !a.events.reduced() && a.ctx.Err() == nil {
				<-time.After(time.Millisecond)
			}
		}
	}
}

// reduced reports whether member 0 has logged a view of two members.
func (l *log) reduced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range of[event.View](l, 0) {
		if len(v.Members) == 2 {
			return true
		}
	}
	return false
}

// The operands of reductions are in the shared memory of the session and in no other, and keep their contents when they move. All
// shared memory is freed at the end. In exact mode shared memory does not change the weights.
func TestSharedBuffers(t *testing.T) {
	weights := weightsUnshared(t)
	for mode, grads := range map[string]bool{"plain": true, "exact": false, "int8": false} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/replaced=%t", mode, replaced), func(t *testing.T) {
				l := newSharingNetwork(t, replaced)
				a := newArena(3, sharingJob(mode))
				a.network = l
				a.adjust = func(x *actor) {
					x.trained = newMemoryModel(func() *shm.Arena { newest, _ := l.now(x.self.ID); return newest })
					a.leaveAt(x, 5)
					x.cfg.Hooks.OnStep = watching(t, l, x, mode != "int8")
				}
				a.play(t)
				if sha := a.check(t, mode); mode == "exact" && sha != weights {
					t.Errorf("weights %s, without shared memory %s", sha, weights)
				}
				if len(l.sessions) < 2 {
					t.Errorf("%d sessions, want two or more", len(l.sessions))
				}
				for _, x := range a.actors {
					if m := x.trained.(*memoryModel); (m.outside == 0) != grads || (m.inside == 0) == grads {
						t.Errorf("%s: gradients of %d microbatches in shared memory, of %d elsewhere", x.self.ID, m.inside, m.outside)
					}
				}
			})
		}
	}
}

// newSharingNetwork returns a network. A cleanup of the test checks that all memory of the network is free.
func newSharingNetwork(t *testing.T, replaced bool) *sharingNetwork {
	l := &sharingNetwork{Network: mem.NewNetwork(), replaced: replaced, arenas: make(map[elastic.ID][]*shm.Arena), sessions: make(map[uint64]*sessionMemory)}
	t.Cleanup(func() {
		for id, all := range l.arenas {
			for _, a := range all {
				if n := pages(t, a); n != 0 {
					t.Errorf("%s leaves %d pages behind", id, n)
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return l
}

// watching returns a function that checks the memory of a member after each step.
func watching(t *testing.T, l *sharingNetwork, x *actor, used bool) func(trainer.StepReport) {
	return func(r trainer.StepReport) {
		x.steps = append(x.steps, r)
		newest, older := l.now(x.self.ID)
		if (pages(t, newest) > 0) != used {
			t.Errorf("%s: step %d: %d pages in use", x.self.ID, r.Step, pages(t, newest))
		}
		for _, a := range older {
			if pages(t, a) != 0 {
				t.Errorf("%s: step %d: memory of another session is still in use", x.self.ID, r.Step)
			}
		}
	}
}

// weightsUnshared returns the weights of the job in exact mode, without shared memory.
func weightsUnshared(t *testing.T) (sha string) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, sharingJob("exact"))
		a.adjust = func(x *actor) { x.trained = newMemoryModel(nil) }
		a.play(t)
		sha = a.check(t, "alone")
	})
	return sha
}

// A session without shared memory ends when a member fails. The next session has shared memory, and the microbatches that the
// others have computed move into it. No microbatch is computed again.
func TestSharedBuffersOfAnOpenStep(t *testing.T) {
	weights := weightsUnshared(t)
	l := newSharingNetwork(t, false)
	l.since = 2
	a := newArena(3, sharingJob("exact"))
	a.network = l
	a.adjust = func(x *actor) {
		m := newMemoryModel(nil)
		x.trained = m
		x.cfg.Hooks.OnBegin = func(step int64) {
			if step == 5 && x.self.Index == 2 {
				x.killed.Store(true) // the peer has no result
				m.broken = errors.New("out of order")
			}
		}
	}
	a.play(t)
	if sha := a.check(t, "a member fails"); sha != weights {
		t.Errorf("weights %s, want %s", sha, weights)
	}
	if len(l.sessions) == 0 {
		t.Error("no session had memory")
	}
}

// A member whose shared memory is full logs that once, and computes in private memory.
func TestSharedBuffersWithoutRoom(t *testing.T) {
	l := newSharingNetwork(t, false)
	l.full = "peer-of-rank-1"
	a := newArena(3, sharingJob("plain"))
	a.network = l
	var lines []string
	a.adjust = func(x *actor) {
		x.trained = newMemoryModel(func() *shm.Arena { newest, _ := l.now(x.self.ID); return newest })
		a.leaveAt(x, 5)
		if x.self.ID == l.full {
			x.cfg.Hooks.Log = func(line string) { lines = append(lines, line) }
			x.cfg.Hooks.OnStep = watching(t, l, x, false)
		}
	}
	a.play(t)
	a.check(t, "no room")
	if m := a.actors[1].trained.(*memoryModel); m.inside != 0 || a.actors[0].trained.(*memoryModel).outside != 0 {
		t.Errorf("%d microbatches where there is no room, %d elsewhere where there is", m.inside, a.actors[0].trained.(*memoryModel).outside)
	}
	if told := strings.Count(strings.Join(lines, "\n"), "gradients stay in private memory"); told != 1 {
		t.Errorf("logged %d times: %q", told, lines)
	}
}

// Memory of the model (Model.Grads) that lies in the arena of its process stays there, and sums move to the arena beside it.
func TestSharedBuffersOfTheModel(t *testing.T) {
	l := newSharingNetwork(t, false)
	a := newArena(3, sharingJob("plain"))
	a.network = l
	a.adjust = func(x *actor) {
		own, err := l.build(x.self.ID)
		if err != nil {
			t.Fatal(err)
		}
		l.arenas[x.self.ID] = []*shm.Arena{own}
		flat, err := shm.Alloc[float32](own, memoryModelSize)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := own.Free(kernel.Bytes(flat)); err != nil {
				t.Error(err)
			}
		})
		before := pages(t, own)
		m := newMemoryModel(func() *shm.Arena { return own })
		x.trained = givenMemory{m, flat}
		a.leaveAt(x, 5)
		x.cfg.Hooks.OnStep = func(r trainer.StepReport) {
			x.steps = append(x.steps, r)
			if n := pages(t, own); n != 3*before {
				t.Errorf("%s: step %d: %d pages in use, %d of the model", x.self.ID, r.Step, n, before)
			}
		}
	}
	a.play(t)
	a.check(t, "memory of the model")
	for _, x := range a.actors {
		if m := x.trained.(givenMemory); m.outside > 0 || m.inside == 0 {
			t.Errorf("%s: gradients of %d microbatches in shared memory, of %d elsewhere", x.self.ID, m.inside, m.outside)
		}
	}
}

// givenMemory is a memoryModel with gradients in a given vector.
type givenMemory struct {
	*memoryModel
	flat []float32
}

func (g givenMemory) Model() trainer.Model {
	m, rest := trainer.ModelOf(g.memoryModel), g.flat
	for _, p := range m.Params {
		m.Grads, rest = append(m.Grads, rest[:len(p.Data)]), rest[len(p.Data):]
	}
	return m
}
