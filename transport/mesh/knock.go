package mesh

import (
	"context"
	"errors"

	"github.com/elrun/elrun/transport/internal/wire"
)

// A knock is a request: the lower rank of a pair asks the higher rank to open the lanes. The lower rank opens a
// stream for it, which begins with hellos as an urgent lane does. The higher rank closes the stream when the
// pair has begun. If the process of the higher rank dies the stream ends, too, so the lower rank notices that.

// errKnocked: the stream of a knock has ended, and the pair has not begun.
var errKnocked = errors.New("it has not opened the lanes")

// knock asks a higher rank to open the lanes of the pair. It returns nil if the pair has begun.
func (d *demand) knock(rank int) error {
	s, err := d.m.carrier.Open(d.life, d.a.view.Members[rank].ID, Urgent)
	if err == nil {
		stop := context.AfterFunc(d.life, func() { _ = s.Reset() })
		err = d.m.waitBehind(d.a, s, rank)
		stop()
		_ = s.Reset()
	}
	if d.t.pairs[rank].Load() != nil {
		return nil
	}
	return err
}

// waitBehind sends the knock on s, and returns when the other side has ended s.
func (m *Mesh) waitBehind(a *attempt, s Stream, rank int) error {
	if err := sendHello(s, m.greeting(a)); err != nil {
		return err
	}
	g, err := readHello(s)
	if err == nil {
		err = m.check(a, g, rank)
	}
	if err == nil {
		_, _ = s.Read(make([]byte, 1))
		err = errKnocked
	}
	return err
}

// answerKnock makes the pair with a lower rank, whose knock is the stream s with the hello g.
func (m *Mesh) answerKnock(a *attempt, s Stream, g wire.Greeting) {
	d := a.demand
	select {
	case <-d.begun:
	case <-d.life.Done():
		_ = s.Reset() // the lower rank knocks again, and is then told why the view is over
		return
	}
	p, mk := d.need(int(g.Rank))
	if p == nil && mk == nil {
		d.refuse(s)
		return
	}
	if sendHello(s, m.greeting(a)) != nil {
		_ = s.Reset()
		return
	}
	if mk != nil {
		select {
		case <-mk.done:
		case <-d.life.Done():
		}
	}
	_ = s.Close()
}

// refuse answers the hello on s, which is for this view, when the view is over.
func (d *demand) refuse(s Stream) {
	d.mu.Lock()
	failed, told := d.t == nil, d.told
	d.mu.Unlock()
	if failed || d.m.life.Err() != nil {
		_ = s.Reset() // this rank may enter the view again, or is about to be gone
		return
	}
	refuse(s, left, told)
}

// maxPast is how many finished views are remembered. A rank that opens a lane for one of them too late is told
// how the view has ended.
const maxPast = 8

// pastView is a view that is over at this end.
type pastView struct {
	hash  [32]byte
	cause []byte // encoded; empty if it was closed
}

// retire forgets a view that is over, but remembers the cause. A second call has no effect.
func (m *Mesh) retire(a *attempt, cause []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attempts[a.hash] != a {
		return
	}
	m.forgetLocked(a)
	m.past = append(m.past, pastView{a.hash, cause[:min(len(cause), maxCause)]})
	if len(m.past) > maxPast {
		m.past = m.past[1:]
	}
}

// maxCause is the longest cause in a refusal, in bytes. EncodeCause makes only shorter ones.
const maxCause = 500

// forgetLocked forgets an attempt.
func (m *Mesh) forgetLocked(a *attempt) {
	if m.attempts[a.hash] == a {
		delete(m.attempts, a.hash)
	}
}

// pastLocked returns why the view with this hash has ended, if it is among the remembered ones.
func (m *Mesh) pastLocked(hash [32]byte) (cause []byte, ok bool) {
	for _, p := range m.past {
		if p.hash == hash {
			return p.cause, true
		}
	}
	return nil, false
}
