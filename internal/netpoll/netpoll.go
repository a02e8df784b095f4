// Package netpoll keeps network messages moving while the program computes: on a single processor
// (Engine), and with few wake-ups (Stream).
//
// # Engine
//
// With one processor the Go runtime polls the network only when the computing goroutine blocks, and
// otherwise every 10 ms; then another 10 ms may pass until that goroutine is preempted. Each
// message of a concurrent call is delayed by this time. Yielding (runtime.Gosched) does not help:
// the scheduler finds the yielding goroutine runnable before it polls the network. An Engine makes
// the goroutine block instead, on a byte that it has sent to itself through a pipe. Only a poll of
// the network finds this byte, and the same poll finds all messages.
//
// Use, from one goroutine:
//
//	e, err := netpoll.New()
//	defer e.Close()
//	for ... {
//		... // compute for a millisecond or less
//		e.PollIfDue()
//	}
//
// With several processors the idle processors poll the network, and an Engine only yields.
//
// # Stream
//
// A Stream reads and writes a socket without waking the runtime's monitor thread (sysmon), and can
// busy-poll for a message that comes soon.
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

// Engine lets goroutines that wait for network messages run while another goroutine computes. Only
// one goroutine may call Poll and PollIfDue; other goroutines may call New and Close.
type Engine struct {
	in, out      *os.File      // ends of a pipe; nil with several processors
	reader       *Stream       // reads from in
	writer       *Stream       // writes to out
	readRequests chan struct{} // asks the reader goroutine to read a byte
	// readDone gets a value when the reader has read the byte.
	readDone chan struct{}
	running  sync.WaitGroup
	// token is the byte that is sent through the pipe.
	token    [1]byte
	lastPoll time.Time // end of the last Poll
}

// minInterval is the least time between two polls of PollIfDue. A poll without messages takes 3 us,
// less than 1 % of this interval.
const minInterval = 500 * time.Microsecond

// New returns an Engine for the present number of processors (GOMAXPROCS). The caller closes it.
// With more than one processor the Engine needs neither a pipe nor a goroutine, and New cannot
// fail.
func New() (*Engine, error) {
	e := new(Engine)
	if runtime.GOMAXPROCS(0) > 1 {
		return e, nil
	}
	var err error
	if e.in, e.out, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("netpoll: %w", err)
	}
	e.reader, e.writer = NewStream(e.in, false), NewStream(e.out, false)
	e.readRequests, e.readDone = make(chan struct{}), make(chan struct{})
	e.running.Go(e.read)
	return e, nil
}

// read is the reader goroutine. It reads a byte only when asked: in a synctest bubble time stands
// still while a goroutine reads.
func (e *Engine) read() {
	var b [1]byte
	for range e.readRequests {
		_, _ = e.reader.Read(b[:])
		e.readDone <- struct{}{}
	}
}

// PollIfDue calls Poll if the last call was at least minInterval ago, and does nothing otherwise.
func (e *Engine) PollIfDue() {
	if time.Since(e.lastPoll) >= minInterval {
		e.Poll()
	}
}

// Poll runs all goroutines for which messages have arrived, until they block again.
func (e *Engine) Poll() {
	if e.out != nil {
		e.readRequests <- struct{}{}
		runtime.Gosched() // let the reader goroutine start its read, which blocks: the pipe is empty
		if _, err := e.writer.Write(e.token[:]); err != nil {
			_ = e.out.Close() // ends the read, for which the reader would otherwise wait for ever
		}
		<-e.readDone
	}
	runtime.Gosched() // the scheduler runs this goroutine before the other goroutines that the poll found; let those run now
	e.lastPoll = time.Now()
}

// Close releases the pipe and waits for the reader goroutine. No other method may be called after
// Close.
func (e *Engine) Close() error {
	if e.out == nil {
		return nil
	}
	close(e.readRequests)
	e.running.Wait()
	if err := errors.Join(e.in.Close(), e.out.Close()); err != nil {
		return fmt.Errorf("netpoll: close: %w", err)
	}
	return nil
}
