// Package transporttest checks that an implementation of transport.Transport keeps the contract in
// the comment of that interface. Each implementation has a test that calls Run:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T, n int) []transport.Transport {
//			...
//		}, transporttest.Options{Kill: func(t transport.Transport) { ... }})
//	}
//
// The subtests are named after the items of the contract.
package transporttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective/transport"
)

// Options has the features that a transport supports.
type Options struct {
	// Kill ends the transport of one rank, as the death of its process does. It is required.
	Kill func(transport.Transport)
	// Bubble runs each subtest in a synctest bubble, in which a call that hangs is found at once. A transport that blocks
	// goroutines in real I/O cannot use it.
	Bubble bool
}

// hang is how long a subtest may take, even on a loaded machine.
const hang = 10 * time.Minute

// check is one subtest. The error of run says how the transport violates the contract.
type check struct {
	name  string
	ranks int
	run   func(*group) error
}

// checks lists all subtests in the order of the contract.
func checks() []check {
	var all []check
	for _, part := range [][]check{messageChecks(), failureChecks(), signalChecks(), closeChecks(), peekChecks(), bulkChecks()} {
		all = append(all, part...)
	}
	return all
}

// Run tests a transport. make returns new endpoints of ranks 0..n-1 of one epoch, and registers the
// release of other resources with t.Cleanup. Run closes the transports. No goroutine may remain
// after the cleanup.
func Run(t *testing.T, make func(t *testing.T, n int) []transport.Transport, o Options) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			one := func(t *testing.T) {
				if err := runOne(t, c, func() []transport.Transport { return make(t, c.ranks) }, o); err != nil {
					t.Error(err)
				}
			}
			if o.Bubble {
				synctest.Test(t, one)
				return
			}
			goleakAtEnd(t)
			one(t)
		})
	}
}

// goleakAtEnd checks that the test, including its other cleanups, leaves no goroutine.
func goleakAtEnd(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// runOne runs c, and closes its transports at the same time, as real ranks do.
func runOne(t testing.TB, c check, make func() []transport.Transport, o Options) error {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	g := &group{ctx: ctx, ts: make(), kill: o.Kill}
	err := c.run(g)
	closed := g.each(func(rank int) error { return g.ts[rank].Close() })
	return errors.Join(err, closed)
}

// group has the transports of all ranks of one epoch.
type group struct {
	ctx  context.Context // ends if the check hangs
	ts   []transport.Transport
	kill func(transport.Transport)
}

// each calls f for every rank at the same time, and returns the joined errors.
func (g *group) each(f func(rank int) error) error {
	return errors.Join(g.errors(f)...)
}

// errors calls f for every rank at the same time. It returns the errors by rank, each with the rank in front.
func (g *group) errors(f func(rank int) error) []error {
	errs := make([]error, len(g.ts))
	var all sync.WaitGroup
	for rank := range g.ts {
		all.Go(func() {
			if err := f(rank); err != nil {
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
			}
		})
	}
	all.Wait()
	return errs
}

// send sends text, and adds a description to the error.
func (g *group) send(from, to int, e transport.Envelope, text string) error {
	if err := g.ts[from].Send(g.ctx, to, e, []byte(text)); err != nil {
		return fmt.Errorf("send %.20q from %d to %d: %w", text, from, to, err)
	}
	return nil
}

// want receives a message of rank from at rank at, and compares it with text.
func (g *group) want(at, from int, e transport.Envelope, text string) error {
	buf := make([]byte, len(text))
	if err := g.ts[at].Recv(g.ctx, from, e, buf); err != nil {
		return fmt.Errorf("receive %.20q at %d from %d: %w", text, at, from, err)
	}
	if string(buf) != text {
		return fmt.Errorf("received %.20q at %d from %d, want %.20q", buf, at, from, text)
	}
	return nil
}

// begin runs f in a goroutine, and returns a channel for its error.
func begin(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// tag returns the envelope for a tag.
func tag(seq uint32) transport.Envelope {
	return transport.Envelope{Comm: 3, Seq: seq, Call: transport.Call{Kind: transport.KindPoint, Root: -1, Count: 5}}
}

// pattern returns n bytes that depend on all arguments, so that misplaced bytes are found. It repeats a random block of odd
// length, so that segments differ.
func pattern(n, from, to, round int) []byte {
	b := make([]byte, n)
	x := uint32(from*7919+to*104729+round*1299709) | 1
	block := b[:min(n, 1021)]
	for i := range block {
		x = x*1664525 + 1013904223
		block[i] = byte(x >> 24)
	}
	for filled := len(block); filled < n; {
		filled += copy(b[filled:], b[:filled])
	}
	return b
}
