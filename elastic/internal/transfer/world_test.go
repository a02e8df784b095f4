package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/internal/pause"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDead = errors.New("peer is dead")

// world is a job whose donors commit steps together, and a network with a link to each donor. It
// runs in a synctest bubble.
type world struct {
	t     *testing.T
	every time.Duration // time between steps
	size  int           // bytes of the state
	upd   int           // bytes of an update

	mu    sync.Mutex
	nodes []*node
	step  int64
	state []byte
}

// node is a donor and the link to it.
type node struct {
	name    string
	donor   *Donor
	link    *bucket
	latency time.Duration
	spoil   bool // its state differs from the state of the other donors

	mu     sync.Mutex
	budget int64                  // number of bytes after which the node dies; 0 for never
	limit  int64                  // number of bytes after which the node sends no more; 0 for never
	sent   int64                  // number of bytes sent
	chunks int64                  // number of bytes sent of chunks, with headers
	damage func(req, b []byte)    // changes the bytes of answers
	reqs   []string               // requests received
	dead   context.Context        // ends when the node dies
	kill   context.CancelFunc     //
	filter func(req []byte) error // refuses requests
}

// newWorld returns a job of n donors, with links of the given rate in bytes a second, after step
// 10.
func newWorld(t *testing.T, n int, rate int64, cfg Config) *world {
	w := &world{t: t, every: 100 * time.Millisecond, size: 1 << 20, upd: 1000, step: 10}
	cfg.Replays = true
	if cfg.Chunk == 0 {
		cfg.Chunk = 16 << 10
	}
	for i := range n {
		nd := &node{name: fmt.Sprintf("donor%d", i), donor: NewDonor(w.step, cfg), link: &bucket{rate: rate}, latency: time.Millisecond}
		nd.dead, nd.kill = context.WithCancel(context.Background())
		t.Cleanup(nd.donor.Close)
		w.nodes = append(w.nodes, nd)
	}
	return w
}

// at returns the state after a step, computed from the start.
func (w *world) at(step int64) []byte {
	state := make([]byte, w.size)
	for i := range state {
		state[i] = byte(i * 7)
	}
	for s := int64(11); s <= step; s++ {
		fold(state, w.update(s))
	}
	return state
}

// update returns the update of a step.
func (w *world) update(step int64) []byte {
	u := make([]byte, w.upd)
	for i := range u {
		u[i] = byte(int64(i)*step + step>>3 + 1)
	}
	return u
}

// fold applies an update to a state.
func fold(state, update []byte) {
	for i := range update {
		state[i%len(state)] += update[i]
	}
}

// commit makes one step at all live donors.
func (w *world) commit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		w.state = w.at(w.step)
	}
	w.step++
	u := w.update(w.step)
	fold(w.state, u)
	for _, n := range w.nodes {
		if n.dead.Err() == nil {
			w.commitTo(n, u)
		}
	}
}

// commitTo reports the step to one donor.
func (w *world) commitTo(n *node, update []byte) {
	if n.donor.Wanted(w.step) {
		w.check(n.donor.Snapshot(w.step, w.save(n)))
	}
	if n.donor.Logging() {
		w.check(n.donor.Update(w.step, func(out io.Writer) error {
			_, err := out.Write(update)
			return err
		}))
	}
}

// save returns a function that writes the node's state.
func (w *world) save(n *node) func(io.Writer) error {
	return func(out io.Writer) error {
		state := bytes.Clone(w.state)
		if n.spoil {
			state[0]++
		}
		_, err := out.Write(state)
		return err
	}
}

func (w *world) check(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

// train commits steps until ctx ends.
func (w *world) train(ctx context.Context) {
	for pause.For(ctx, w.every) == nil {
		w.commit()
	}
}

// run runs f in a synctest bubble in which the job trains until f returns.
func run(t *testing.T, make func(t *testing.T) *world, f func(ctx context.Context, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := make(t)
		ctx, cancel := context.WithCancel(t.Context())
		var training sync.WaitGroup
		training.Go(func() { w.train(ctx) })
		f(ctx, w)
		cancel()
		training.Wait()
	})
}

// options returns the Options of a newcomer that may ask all donors.
func (w *world) options() Options {
	var names []string
	for _, n := range w.nodes {
		names = append(names, n.name)
	}
	return Options{Self: "joiner", Donors: func() []string { return names }}
}

// Request implements Source.
func (w *world) Request(ctx context.Context, donor string, req []byte) (io.ReadCloser, error) {
	var n *node
	for _, c := range w.nodes {
		if c.name == donor {
			n = c
		}
	}
	if n == nil {
		return nil, errDead
	}
	if err := pause.For(ctx, n.latency); err != nil {
		return nil, err
	}
	if n.dead.Err() != nil {
		return nil, errDead
	}
	if err := n.note(req); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r, out := io.Pipe()
	stopDead := context.AfterFunc(n.dead, func() { out.CloseWithError(errDead); cancel() })
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()); r.CloseWithError(context.Canceled) })
	go func() {
		err := n.donor.Serve(ctx, req, &linkWriter{ctx, n, out, req})
		out.CloseWithError(err) // io.EOF for nil
	}()
	return &body{r, func() { stopDead(); stop(); r.Close(); cancel() }}, nil
}

// note records a request.
func (n *node) note(req []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reqs = append(n.reqs, string(req))
	if n.filter != nil {
		return n.filter(req)
	}
	return nil
}

type body struct {
	io.Reader
	close func()
}

func (b *body) Close() error { b.close(); return nil }

// linkWriter is a donor's link, with its rate and its faults.
type linkWriter struct {
	ctx  context.Context
	n    *node
	out  io.Writer
	from []byte // request that is answered
}

func (l *linkWriter) Write(b []byte) (int, error) {
	const packet = 4 << 10
	var total int
	for len(b) > 0 {
		part := bytes.Clone(b[:min(len(b), packet)])
		if err := l.n.link.take(l.ctx, len(part)); err != nil {
			return total, err
		}
		if err := l.n.pass(l.ctx, l.from, part); err != nil {
			return total, err
		}
		n, err := l.out.Write(part)
		total += n
		if err != nil {
			return total, err
		}
		b = b[n:]
	}
	return total, nil
}

// isChunks reports whether a request is for chunks.
func isChunks(req []byte) bool { return bytes.Contains(req, []byte(opChunks)) }

// chunks returns the number of bytes that each donor has sent of chunks, with headers, and their
// sum.
func (w *world) chunks() (by []int64, sum int64) {
	for _, n := range w.nodes {
		n.mu.Lock()
		by = append(by, n.chunks)
		sum += n.chunks
		n.mu.Unlock()
	}
	return by, sum
}

// pass applies the node's faults to a part of an answer.
func (n *node) pass(ctx context.Context, req, part []byte) error {
	n.mu.Lock()
	n.sent += int64(len(part))
	die := n.budget > 0 && n.sent > n.budget
	silent := n.limit > 0 && n.sent > n.limit
	if n.damage != nil {
		n.damage(req, part)
	}
	if isChunks(req) && !die && !silent {
		n.chunks += int64(len(part))
	}
	n.mu.Unlock()
	if die {
		n.kill()
		return errDead
	}
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// fetched fails the test unless the snapshot is the job's state at its step.
func (w *world) fetched(s *Snapshot, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	got, err := io.ReadAll(s.Reader())
	if err != nil || int64(len(got)) != s.Bytes || !bytes.Equal(got, w.at(s.Step)) {
		w.t.Fatalf("snapshot of step %d: %d bytes, %v: not those of the job", s.Step, len(got), err)
	}
}
