package mesh

import (
	"context"
	"errors"

	"github.com/elrun/elrun/transport/internal/wire"
)

// A knock is a stream by which the lower rank of a pair has the higher one open its lanes. It begins as an
// urgent lane does. The other side ends it when it has begun the pair: if its process dies before, that is seen.

// errKnocked: the stream of a knock has ended, and there is no pair.
var errKnocked = errors.New("it has not opened the lanes")

// knock has a higher rank open the lanes of the pair, and returns nil if there is one.
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

// waitBehind knocks on a stream, and returns when the other side ends it.
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

// answerKnock makes the pair with a lower rank that has said g on s.
func (m *Mesh) answerKnock(a *attempt, s Stream, g wire.Greeting) {
	d := a.demand
	select {
	case <-d.begun:
	case <-d.life.Done():
		_ = s.Reset() // it knocks again, and is told why the view is over
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

// refuse answers a hello for the view, which is over.
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

// maxPast is how many views are remembered that are over: who is late to open a lane for one of them is told
// how that has ended.
const maxPast = 8

// pastView is a view that is over at this end.
type pastView struct {
	hash  [32]byte
	cause []byte // encoded; empty if it was closed
}

// retire forgets a view that is over, but for why. It may be called again.
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

// maxCause is the longest cause in a refusal, in bytes. All that EncodeCause makes are shorter.
const maxCause = 500

// forgetLocked forgets an attempt.
func (m *Mesh) forgetLocked(a *attempt) {
	if m.attempts[a.hash] == a {
		delete(m.attempts, a.hash)
	}
}

// pastLocked returns how a view has ended that is over, if that is remembered.
func (m *Mesh) pastLocked(hash [32]byte) (cause []byte, ok bool) {
	for _, p := range m.past {
		if p.hash == hash {
			return p.cause, true
		}
	}
	return nil, false
}
