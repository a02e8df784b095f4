package mesh

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// tube is a stream in memory whose ends know each other's ID.
type tube struct {
	net.Conn
	net  *tubes
	k    Kind
	peer elastic.ID
}

func (t tube) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.net.mu.Lock()
	paused, kind := t.net.paused, t.net.pausedKind
	t.net.mu.Unlock()
	if t.k == kind && paused != nil {
		<-paused
	}
	return n, err
}

func (t tube) Reset() error      { return t.Close() }
func (t tube) CloseWrite() error { return t.Close() }
func (t tube) Peer() elastic.ID  { return t.peer }
func (t tube) Path() event.Path  { return event.Path{Kind: t.net.kind} }

// roomy is a connection whose writes never block, as in a socket with enough buffer.
type roomy struct {
	net.Conn
	out  chan []byte
	done chan struct{}
	once sync.Once
}

func newRoomy(c net.Conn) *roomy {
	r := &roomy{Conn: c, out: make(chan []byte, 100), done: make(chan struct{})}
	go func() {
		for {
			select {
			case b := <-r.out:
				_, _ = r.Conn.Write(b)
			case <-r.done:
				return
			}
		}
	}()
	return r
}

func (r *roomy) Write(b []byte) (int, error) {
	select {
	case r.out <- slices.Clone(b):
		return len(b), nil
	case <-r.done:
		return 0, net.ErrClosed
	}
}

func (r *roomy) Close() error {
	r.once.Do(func() { close(r.done) })
	return r.Conn.Close()
}

// tubes is a network in memory that counts the streams of views.
type tubes struct {
	kind string // the Kind of all paths

	mu         sync.Mutex
	ends       map[elastic.ID]*tubeEnd
	opened     int
	paused     chan struct{} // if not nil, bytes of pausedKind are read only after it is closed
	pausedKind Kind
}

// tubeEnd is the Carrier of one end of a network of tubes.
type tubeEnd struct {
	*tubes
	id     elastic.ID
	take   func(Kind, Stream)
	taking sync.WaitGroup
	open   []Stream // guarded by tubes.mu
}

func (t *tubeEnd) ID() elastic.ID                     { return t.id }
func (t *tubeEnd) Introduce([]elastic.Member) error   { return nil }
func (t *tubeEnd) Handle(take func(k Kind, s Stream)) { t.take = take }
func (t *tubeEnd) HangUp(elastic.ID)                  {}

func (t *tubeEnd) Open(_ context.Context, to elastic.ID, k Kind) (Stream, error) {
	near, far := net.Pipe()
	if k == Urgent { // the readers of both sides may answer at the same time
		near, far = newRoomy(near), newRoomy(far)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	other, s := t.ends[to], tube{near, t.tubes, k, to}
	t.open, other.open = append(t.open, s), append(other.open, tube{far, t.tubes, k, t.id})
	if k == Data || k == Urgent {
		t.opened++
	}
	other.taking.Go(func() { other.take(k, tube{far, t.tubes, k, t.id}) })
	return s, nil
}

func (t *tubeEnd) Close() error {
	t.mu.Lock()
	open := t.open
	t.mu.Unlock()
	for _, s := range open {
		_ = s.Reset()
	}
	t.taking.Wait()
	return nil
}

// count returns how many streams of views were opened since the last count.
func (t *tubes) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { t.opened = 0 }()
	return t.opened
}

// tubed runs f, in virtual time, with three meshes and their first view.
func tubed(t *testing.T, kind string, f func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View)) {
	synctest.Test(t, func(t *testing.T) {
		n := &tubes{kind: kind, ends: make(map[elastic.ID]*tubeEnd)}
		var ms []*Mesh
		v := elastic.View{Epoch: 1}
		for _, id := range []elastic.ID{"a", "b", "c"} {
			e := &tubeEnd{tubes: n, id: id}
			n.ends[id] = e
			ms = append(ms, New(e, Config{Job: "test"}))
			v.Members = append(v.Members, elastic.Member{ID: id})
		}
		f(t, n, ms, v)
		closeAll(t, ms)
	})
}

// After a view that has ended in good order, by Close or by a revocation, the next view opens no stream,
// also if the ranks have changed.
func TestLanesStay(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		for i, want := range []int{6, 0, 0, 0, 0} {
			ts := mustMeet(t, ms, v)
			if got := n.count(); got != want {
				t.Errorf("view %d: %d streams were opened, want %d", v.Epoch, got, want)
			}
			talk(t, ts)
			if i%2 == 1 {
				ts[i%3].Revoke(errors.New("enough"))
			}
			endAll(t, ts)
			v = following(v, 2, 0, 1)
			ms[0], ms[1], ms[2] = ms[2], ms[0], ms[1]
		}
	})
}

// pause makes reads from streams of kind k wait until resume.
func (t *tubes) pause(k Kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused, t.pausedKind = make(chan struct{}), k
}

// resume undoes pause.
func (t *tubes) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.paused)
	t.paused = nil
}

// If a view is revoked in the middle of a message, the next view opens a new stream in place of the stream of
// that message, and no other stream.
func TestLaneBreaksOff(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		ts := mustMeet(t, ms, v)
		n.count()
		n.pause(Data)
		sent := make(chan error)
		go func() { sent <- ts[0].Send(t.Context(), 1, transport.Envelope{}, make([]byte, 1<<20)) }()
		synctest.Wait()
		begun := time.Now()
		ts[2].Revoke(errors.New("enough"))
		if err := <-sent; err == nil || time.Since(begun) > 0 {
			t.Errorf("Send ended after %v with %v", time.Since(begun), err)
		}
		n.resume()
		endAll(t, ts)
		ts = mustMeet(t, ms, following(v, 0, 1, 2))
		talk(t, ts)
		if got := n.count(); got != 1 {
			t.Errorf("%d streams were opened, want 1", got)
		}
		endAll(t, ts)
	})
}

// A rank that is revoked while a message is read into its buffer has the buffer back at once, and the rest
// of the message reaches no view.
func TestLaneBreaksOffAtReader(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		ts := mustMeet(t, ms, v)
		n.count()
		got := make(chan error)
		go func() { got <- ts[1].Recv(t.Context(), 0, transport.Envelope{}, make([]byte, 2)) }()
		synctest.Wait()
		p := ts[0].pairs[1].Load()
		p.data.writers.busy = true
		p.writing.Store(true) // as if a Send had written only a part of its message
		if _, err := p.data.raw.Write(frame(dataHeader(2), "x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.pause(Urgent) // so that the sender does not reset the stream
		begun := time.Now()
		ts[1].Revoke(errors.New("enough"))
		if err := <-got; err == nil || time.Since(begun) > 0 {
			t.Errorf("Recv ended after %v with %v", time.Since(begun), err)
		}
		n.resume()
		endAll(t, ts)
		ts = mustMeet(t, ms, following(v, 0, 1, 2))
		talk(t, ts)
		if got := n.count(); got != 1 {
			t.Errorf("%d streams were opened, want 1", got)
		}
		endAll(t, ts)
	})
}

// A view that begins while the view before is still in use gets streams of its own after bindTime.
func TestLanesInUse(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		first := mustMeet(t, ms, v)
		n.count()
		begun := time.Now()
		w := following(v, 0, 1, 2)
		second := mustMeet(t, ms, w)
		if got, took := n.count(), time.Since(begun); got != 6 || took != bindTime {
			t.Errorf("%d streams were opened after %v, want 6 after %v", got, took, bindTime)
		}
		talk(t, first)
		endAll(t, first)
		talk(t, second)
		endAll(t, second)
		third := mustMeet(t, ms, following(w, 0, 1, 2))
		if got := n.count(); got != 0 {
			t.Errorf("%d streams were opened for the third view", got)
		}
		talk(t, third)
		endAll(t, third)
	})
}

// A lane in use that is requested only after bindTime, as the process was slow, is replaced as well.
func TestLanesRequestedLate(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		first := mustMeet(t, ms, v)
		n.count()
		ctx, cancel := context.WithCancel(t.Context())
		a := newAttempt(ctx, ms[1].binder, following(v, 0, 1, 2), 1, nil)
		a.dialLate()
		a.dialAll()
		synctest.Wait()
		if got := n.count(); got != streamsPerPair {
			t.Errorf("%d streams were opened to rank 0, want %d", got, streamsPerPair)
		}
		cancel()
		a.dials.Wait()
		endAll(t, first)
	})
}

// A view that is entered while the view before ends gets the streams of that view as soon as it has ended.
func TestLanesEnding(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		first := mustMeet(t, ms, v)
		n.count()
		var late sync.WaitGroup
		begun := time.Now()
		for i, e := range first {
			late.Add(1)
			time.AfterFunc(time.Duration(i)*bindTime/4, func() {
				defer late.Done()
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		second := mustMeet(t, ms, following(v, 0, 1, 2))
		if got, took := n.count(), time.Since(begun); got != 0 || took != bindTime/2 {
			t.Errorf("%d streams were opened after %v, want none after %v", got, took, bindTime/2)
		}
		late.Wait()
		talk(t, second)
		endAll(t, second)
	})
}

// Streams with peers that are not in the next view end, and so do streams over relays.
func TestLanesAreGivenUp(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		endAll(t, mustMeet(t, ms, v))
		endAll(t, mustMeet(t, ms[:2], following(v, 0, 1)))
		synctest.Wait()
		for i, want := range []int{2, 2, 0} {
			if got := len(ms[i].lanes.all); got != want {
				t.Errorf("member %d keeps %d streams, want %d", i, got, want)
			}
		}
	})
	tubed(t, "relay", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		endAll(t, mustMeet(t, ms, v))
		n.count()
		endAll(t, mustMeet(t, ms, following(v, 0, 1, 2)))
		if got := n.count(); got != 6 {
			t.Errorf("%d streams were opened, want 6", got)
		}
	})
}

// If two processes say hello on one stream at the same time, for different views, both open new streams.
func TestHellosCross(t *testing.T) {
	tubed(t, "", func(t *testing.T, n *tubes, ms []*Mesh, v elastic.View) {
		ms, v.Members = ms[:2], v.Members[:2]
		endAll(t, mustMeet(t, ms, v))
		synctest.Wait()
		n.count()
		ctx, cancel := context.WithCancel(t.Context())
		w := following(v, 1, 0)
		next := following(w, 1, 0)
		b := newAttempt(ctx, ms[1].binder, next, 1, nil)
		for number := range streamsPerPair { // as if b had said hello
			if l, _, idle := ms[1].lanes.requestBind(b, 0, number); l == nil || !idle {
				t.Fatal("there is no idle stream")
			}
		}
		failed := make(chan error)
		go func() {
			_, err := ms[0].connect(ctx, w, 1)
			failed <- err
		}()
		synctest.Wait()
		if b.missing != streamsPerPair {
			t.Error("a hello for another view counts as the answer")
		}
		if got := n.count(); got != 2*streamsPerPair {
			t.Errorf("%d streams were opened, want %d", got, 2*streamsPerPair)
		}
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the end of the attempt", err)
		}
		b.dials.Wait()
	})
}

// Ranks can agree to share memory over streams that the view before has used, although the files of
// the memory come along with certain bytes of a stream.
func TestLanesStayWithFiles(t *testing.T) {
	ms, v := startOnHost(t, "auto", "auto", "auto")
	for range 30 {
		ts := mustMeet(t, ms, v)
		for to := 1; to < 3; to++ {
			wantPath(t, ts, 0, to, "shm", "")
		}
		talk(t, ts)
		endAll(t, ts)
		v = following(v, 0, 1, 2)
	}
	closeAll(t, ms)
}
