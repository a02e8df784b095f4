package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/transport/internal/wire"
)

// takeAll receives the first message of each other rank.
func takeAll(s *shmGroup) error {
	for _, c := range s.conns[1:] {
		m, files, err := receiveShare(c)
		closeFiles(files)
		if err != nil || m.kind != kindReady {
			return fmt.Errorf("message %d, %w", m.kind, err)
		}
	}
	return nil
}

// sendAll returns the behaviour of a first rank that sends a message with files to all others. Then
// it waits until each other rank has reset its socket, or has answered that it failed.
func sendAll(m shareMessage, files ...func() *os.File) func(s *shmGroup) error {
	return func(s *shmGroup) error {
		err := takeAll(s)
		for _, c := range s.conns[1:] {
			var all []*os.File
			for _, f := range files {
				all = append(all, f())
			}
			err = errors.Join(err, sendShare(c, m, all...))
			closeFiles(all)
		}
		for _, c := range s.conns[1:] {
			m, files, e := receiveShare(c)
			closeFiles(files)
			if e == nil && (m.kind != kindAck || m.why == "" || sendShare(c, shareMessage{kind: kindResult}) != nil) {
				err = errors.Join(err, fmt.Errorf("answered %+v", m))
			}
		}
		return err
	}
}

// If the first rank dies or breaks the protocol, each other rank resets its socket to the first rank.
func TestAgreeWithBadFirst(t *testing.T) {
	shrinks, small := func() *os.File { return memory(false) }, func() *os.File { return memory(true) }
	wakeup := counter
	enough := func() *os.File {
		m, err := shm.NewMemory(shm.Size(3))
		if err != nil {
			panic(err)
		}
		defer m.Close()
		return again(t, m.File())
	}
	for name, play := range map[string]func(s *shmGroup) error{
		"ends at once": func(s *shmGroup) error { return errors.Join(s.conns[1].Reset(), s.conns[2].Reset()) },
		"ends later":   func(s *shmGroup) error { return errors.Join(takeAll(s), s.conns[1].Reset(), s.conns[2].Reset()) },
		"garbage": func(s *shmGroup) error {
			_, err1 := s.conns[1].Write(make([]byte, 100))
			_, err2 := s.conns[2].Write(wire.AppendFrame(nil, wire.Data, nil))
			return errors.Join(err1, err2)
		},
		"another kind":                    sendAll(shareMessage{kind: kindAck}),
		"good news of nothing":            sendAll(shareMessage{kind: kindResult}),
		"an offer without files":          sendAll(shareMessage{kind: kindOffer}),
		"an offer without events":         sendAll(shareMessage{kind: kindOffer, mask: 0b110}, small),
		"an offer without arenas":         sendAll(shareMessage{kind: kindOffer, mask: 0b111}, small, wakeup, wakeup),
		"an offer with an arena too many": sendAll(shareMessage{kind: kindOffer, mask: 0b110}, enough, wakeup, wakeup, small, small),
		"an offer without one's own":      sendAll(shareMessage{kind: kindOffer}, small, wakeup, wakeup),
		"memory that can shrink":          sendAll(shareMessage{kind: kindOffer, mask: 0b110}, shrinks, wakeup, wakeup, small),
		"little memory":                   sendAll(shareMessage{kind: kindOffer, mask: 0b110}, small, wakeup, wakeup, small),
		"an event that blocks":            sendAll(shareMessage{kind: kindOffer, mask: 0b110}, small, small, wakeup, small),
		"an arena that can shrink":        sendAll(shareMessage{kind: kindOffer, mask: 0b111}, small, wakeup, shrinks, wakeup, small),
		"good news for those that cannot": sendAll(shareMessage{kind: kindOffer, mask: 0b111}, shrinks, wakeup, small, wakeup, small),
	} {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			all := crew(t, 3)
			errs := conclude(t, all, 0, play)
			for place, err := range errs {
				if place == 0 {
					continue
				}
				if !isPassing(err) {
					t.Errorf("rank %d: %v", place, err)
				}
				if _, err := io.ReadAll(all[place].conns[0]); err == nil {
					t.Errorf("rank %d has kept its line", place)
				}
			}
			stillOpen(t, all[1].conns[2], all[2].conns[1])
		})
	}
}

// When the context ends, a rank stops waiting for a silent rank.
func TestAgreeCancelled(t *testing.T) {
	keepsFiles(t)
	for silent := range 2 {
		all := crew(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := all[1-silent].negotiate(ctx); !isPassing(err) {
			t.Errorf("rank %d: %v", 1-silent, err)
		}
		h := all[1-silent].host
		h.life.end()
		if err := crewOf(t, h, 1-silent).negotiate(t.Context()); !isPassing(err) {
			t.Errorf("rank %d of a host that is closed: %v", 1-silent, err)
		}
	}
}

// deadlines is a socket that records its last deadline.
type deadlines struct {
	unixStream
	last time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.last = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.last = t; return nil }

// After abort a call of limit does not extend the deadline again.
func TestLimitAfterTheEnd(t *testing.T) {
	d := new(deadlines)
	s := &shmGroup{conns: []unixStream{nil, d}}
	s.limit(time.Unix(100, 0))
	if !d.last.Equal(time.Unix(100, 0)) {
		t.Errorf("the deadline is %v, want the limit", d.last)
	}
	s.abort()
	s.limit(time.Unix(200, 0))
	if d.last.After(time.Unix(1, 0)) {
		t.Errorf("the deadline is %v, want one that has passed", d.last)
	}
}

// crewOf returns the rank at the given place of a crew of two, with h as its memory over views.
func crewOf(t *testing.T, h *hostMemory, place int) *shmGroup {
	t.Helper()
	s := crew(t, 2)[place]
	s.host = h
	return s
}

// Each rank needs a Unix socket to the first rank, and none to others.
func TestAgreeWithGap(t *testing.T) {
	for _, gap := range [][2]int{{0, 1}, {1, 2}} {
		keepsFiles(t)
		all := crew(t, 3)
		a, b := gap[0], gap[1]
		all[a].conns[b], all[b].conns[a] = nil, nil
		for place, err := range conclude(t, all, -1, nil) {
			if a == 0 && (err == nil || isPassing(err)) || a != 0 && err != nil {
				t.Errorf("without a line from %d to %d: rank %d: %v", a, b, place, err)
			}
		}
	}
}
