// Package netpoll lets goroutines that wait for the network go on while another one
// computes on the only processor of the Go runtime.
//
// There the runtime looks for what has come from the network when the computing goroutine
// waits for something, or else every 10 ms, and then it may be another 10 ms before it is
// interrupted: each message of a call that goes on meanwhile takes as long. A goroutine that
// yields (runtime.Gosched) does not change that, as it is found ready before the network is
// looked at. An Engine lets it wait, for a byte that it has sent to itself: that is found by
// looking at the network.
//
// Use, from one goroutine:
//
//	e, err := netpoll.New()
//	defer e.Close()
//	for ... {
//		... // compute for a millisecond or less
//		e.Poke()
//	}
//
// With several processors idle ones wait for the network, and an Engine does nothing but
// yield.
//
// A Stream carries the messages: it reads and writes a socket without waking the thread by
// which the runtime watches over its processors, and need not sleep for what comes soon.
//
//	s := netpoll.NewStream(conn, true)
//	_, err := io.ReadFull(s, head)
package netpoll

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

// Engine gives others their turn. It has one user, but for New and Close.
type Engine struct {
	in, out *os.File      // a pipe; nil where there are several processors
	hear    *Stream       // over in
	tell    *Stream       // over out
	ask     chan struct{} // the reader to wait for a byte
	come    chan struct{} // it has
	reading sync.WaitGroup
	poke    [1]byte   // what is sent
	last    time.Time // that others had their turn
}

// period is how often others have their turn by Poke: a turn in which there is nothing to
// do takes 3 us.
const period = 500 * time.Microsecond

// New returns an engine for the number of processors that the runtime has now.
func New() (*Engine, error) {
	e := new(Engine)
	if runtime.GOMAXPROCS(0) > 1 {
		return e, nil
	}
	var err error
	if e.in, e.out, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("netpoll: %w", err)
	}
	e.hear, e.tell = NewStream(e.in, false), NewStream(e.out, false)
	e.ask, e.come = make(chan struct{}), make(chan struct{})
	e.reading.Go(e.read)
	return e, nil
}

// read waits for a byte whenever it is asked to, and only then: in a synctest bubble time
// stands still while a goroutine reads.
func (e *Engine) read() {
	var b [1]byte
	for range e.ask {
		_, _ = e.hear.Read(b[:])
		e.come <- struct{}{}
	}
}

// Poke is Poll if the last one is half a millisecond ago.
func (e *Engine) Poke() {
	if time.Since(e.last) >= period {
		e.Poll()
	}
}

// Poll lets all go on for which something has come from the network, until they wait
// again.
func (e *Engine) Poll() {
	if e.out != nil {
		e.ask <- struct{}{}
		runtime.Gosched() // the reader finds nothing, and waits
		if _, err := e.tell.Write(e.poke[:]); err != nil {
			_ = e.out.Close() // or the reader would wait for ever; now it reads the end
		}
		<-e.come
	}
	runtime.Gosched() // the reader has put this goroutine before the others that were found
	e.last = time.Now()
}

// Close ends the engine, of which no other method may be called any more.
func (e *Engine) Close() error {
	if e.out == nil {
		return nil
	}
	close(e.ask)
	e.reading.Wait()
	if err := errors.Join(e.in.Close(), e.out.Close()); err != nil {
		return fmt.Errorf("netpoll: close: %w", err)
	}
	return nil
}
