package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic"
)

// maxControls is how many control streams a pair may have. Two peers may open one to each other
// at the same time. Each side writes to the first stream that it has, which keeps its messages in
// order, and reads all streams.
const maxControls = 4

// Send implements elastic.Network. If there is no stream with the peer, it connects first. It
// returns elastic.ErrGone as soon as it is certain that nobody is there; in the first second after
// a peer was introduced this is never certain. In that second, and while the peer does not answer
// or does not know this host, Send tries again until ctx ends.
//
// If no message has been acknowledged for stuckTime, and nothing else has come from the peer, Send
// closes the connection and makes a new one: TCP retransmits ever more rarely, so it would
// notice late that the network works again.
func (m *Mesh) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	err := m.send(ctx, to, msg)
	if err != nil {
		return fmt.Errorf("mesh: send to %s: %w", to.Short(), err)
	}
	return nil
}

// send writes on the stream of the pair, or on a new one if that stream has ended. While the peer may
// still come it goes on until ctx ends.
func (m *Mesh) send(ctx context.Context, to elastic.ID, msg []byte) error {
	if len(msg) > elastic.MaxControl {
		return fmt.Errorf("message of %d bytes, at most %d", len(msg), elastic.MaxControl)
	}
	var last error
	for n := 0; ; n++ {
		if n > 1 { // a new stream has ended at once
			if err := m.pause(ctx, firstPause, last); err != nil {
				return err
			}
		}
		s, err := m.control(ctx, to)
		if err != nil {
			return err
		}
		if m.stuck(to) {
			m.abandon(to, s)
			last = errMissing
			continue
		}
		if err := s.takeTurn(ctx); err != nil {
			return err // another call is writing: it handles a stream that is stuck
		}
		err = s.write(ctx, msg)
		<-s.turn
		if last = err; err == nil {
			return nil
		}
		m.dropControl(to, s)
		_ = s.Reset() // half a message may be on its way
		if ctx.Err() != nil {
			if m.stuck(to) {
				m.carrier.HangUp(to)
			}
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		// The stream had ended: connect again.
	}
}

// stuck reports whether messages to a peer wait for acknowledgements, and nothing comes from it.
func (m *Mesh) stuck(id elastic.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := false
	for _, s := range m.controls[id] {
		since, quiet := s.silence()
		if !quiet {
			return false
		}
		waiting = waiting || since
	}
	return waiting
}

// abandon gives up the connections with a peer, including the connection of the stream s.
func (m *Mesh) abandon(id elastic.ID, s *controlStream) {
	m.dropControl(id, s)
	_ = s.Reset()
	m.carrier.HangUp(id)
}

// control returns the stream on which to write to id. If there is none it opens one, while
// other callers wait: if each opened its own, messages could overtake each other.
func (m *Mesh) control(ctx context.Context, id elastic.ID) (*controlStream, error) {
	for {
		if s := m.firstControl(id); s != nil {
			return s, nil
		}
		ended, mine := m.beginOpening(id)
		if mine {
			err := m.retry(ctx, func() error { return m.openControl(ctx, id) })
			m.endOpening(id, ended)
			if err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// beginOpening lets one caller at a time open a stream to id: mine is true for that caller. For other
// callers it returns the channel that is closed when the attempt to open has ended.
func (m *Mesh) beginOpening(id elastic.ID) (ended chan struct{}, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ended := m.opening[id]; ended != nil {
		return ended, false
	}
	ended = make(chan struct{})
	m.opening[id] = ended
	return ended, true
}

// endOpening wakes the callers that wait for a stream to be opened, so that they look again.
func (m *Mesh) endOpening(id elastic.ID, ended chan struct{}) {
	m.mu.Lock()
	delete(m.opening, id)
	m.mu.Unlock()
	close(ended)
}

var errSelf = errors.New("a member cannot connect to itself")

// openControl opens a stream and starts its reader.
func (m *Mesh) openControl(ctx context.Context, id elastic.ID) error {
	if id == m.id {
		return final{errSelf}
	}
	raw, err := m.carrier.Open(ctx, id, Control)
	if err != nil {
		return err
	}
	s, err := m.addControl(raw)
	if err != nil {
		return err
	}
	go func() {
		defer m.working.Done()
		m.readControl(id, s)
	}()
	return nil
}

// firstControl returns the stream on which this end writes to id, or nil.
func (m *Mesh) firstControl(id elastic.ID) *controlStream {
	m.mu.Lock()
	defer m.mu.Unlock()
	if open := m.controls[id]; len(open) > 0 {
		return open[0]
	}
	return nil
}

// addControl makes a stream known and counts its reader, which the caller runs.
func (m *Mesh) addControl(raw Stream) (*controlStream, error) {
	id := raw.Peer()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || len(m.controls[id]) >= maxControls {
		_ = raw.Reset()
		return nil, errors.New("too many control streams")
	}
	s := newControl(raw)
	m.controls[id] = append(slices.Clone(m.controls[id]), s)
	m.working.Add(1)
	return s, nil
}

// dropControl forgets a stream that has ended.
func (m *Mesh) dropControl(id elastic.ID, s *controlStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(m.controls[id]), func(o *controlStream) bool { return o == s })
	if len(left) == 0 {
		delete(m.controls, id)
		return
	}
	m.controls[id] = left
}

// acceptControl handles a stream that a member opened.
func (m *Mesh) acceptControl(raw Stream) {
	s, err := m.addControl(raw)
	if err != nil {
		return
	}
	defer m.working.Done()
	m.readControl(raw.Peer(), s)
}

// readControl delivers the messages of s until it ends.
func (m *Mesh) readControl(id elastic.ID, s *controlStream) {
	m.links.up(id)
	throttler, _ := m.carrier.(Throttler)
	err := readMessages(s, s.acknowledged, func(msg []byte) {
		s.acknowledge()
		m.links.message(id, msg)
		if throttler != nil {
			throttler.Took(id)
		}
	})
	m.dropControl(id, s)
	_ = s.Reset()
	m.links.down(id, err)
}

// Redial implements elastic.Network.
func (m *Mesh) Redial(to elastic.ID) {
	if !m.begin() {
		return
	}
	go func() {
		defer m.working.Done()
		m.carrier.HangUp(to)
	}()
}

// Events implements elastic.Network.
func (m *Mesh) Events() <-chan elastic.PeerEvent { return m.links.out }
