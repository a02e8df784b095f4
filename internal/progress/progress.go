// Package progress lets goroutines that wait for the network go on while another one
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
//	e, err := progress.New()
//	defer e.Close()
//	for ... {
//		... // compute for a millisecond or less
//		e.Poke()
//	}
//
// With several processors idle ones wait for the network, and an Engine does nothing but
// yield.
package progress

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
	ask     chan struct{} // the reader to wait for a byte
	come    chan struct{} // it has
	reading sync.WaitGroup
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
		return nil, fmt.Errorf("progress: %w", err)
	}
	e.ask, e.come = make(chan struct{}), make(chan struct{})
	e.reading.Go(e.read)
	return e, nil
}

// read waits for a byte whenever it is asked to, and only then: in a synctest bubble time
// stands still while a goroutine reads.
func (e *Engine) read() {
	var b [1]byte
	for range e.ask {
		_, _ = e.in.Read(b[:])
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
		if _, err := e.out.Write([]byte{0}); err != nil {
			_ = e.out.Close() // or the reader would wait for ever; now it reads the end
		}
		<-e.come
	}
	runtime.Gosched() // the reader has put this goroutine before the others that were found
	e.last = time.Now()
}

// Linger waits until done is closed, or for lingerTime, without letting the only processor
// sleep. With several it returns at once.
//
// When its last processor has nothing to do the Go runtime lets the thread sleep that
// watches over them. When that is woken it looks after them every 20 us for fifty times, and
// then ever less often. In a virtual machine each time costs the one who computes some 40 us:
// three waits for the network in a step of 60 ms made it 4 ms longer.
func (e *Engine) Linger(done <-chan struct{}) {
	if e.out == nil {
		return
	}
	begun := time.Now()
	for range lingerPolls { // in a synctest bubble time would stand still
		select {
		case <-done:
			return
		default:
		}
		if time.Since(begun) > lingerTime {
			return
		}
		e.Poll()
	}
}

// Who waits for longer than lingerTime has time to spare. In that time are at most so many
// polls.
const (
	lingerTime  = 10 * time.Millisecond
	lingerPolls = 5000
)

// Close ends the engine, of which no other method may be called any more.
func (e *Engine) Close() error {
	if e.out == nil {
		return nil
	}
	close(e.ask)
	e.reading.Wait()
	if err := errors.Join(e.in.Close(), e.out.Close()); err != nil {
		return fmt.Errorf("progress: close: %w", err)
	}
	return nil
}
