package inpeer

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/mem"
)

// solo returns a group of one in this process, without a network, so that a program for elrun also
// runs alone. It takes the same code path as a larger group, with a network in memory.
func solo(ctx context.Context) (*elastic.Group, error) {
	host, _ := os.Hostname() // appears in messages only; an unknown name stays empty
	self := elastic.Member{ID: "solo", Host: host}
	network := mem.NewNetwork()
	r := newSoloReport(spec.Output{Stdout: os.Stdout, Stderr: os.Stderr})
	return elastic.Join(ctx, elastic.Config{
		Endpoint: elastic.Endpoint{Self: self, Network: network.Member(self.ID), Close: network.Close},
		Peers:    []elastic.Member{self}, Job: rand.Text(), Sink: r, Closers: []io.Closer{r},
	})
}

// soloReport tells people about a program that runs alone, as a launcher does: its progress in
// lines on standard error, and its result as the last line of standard output. There is no progress
// line that is redrawn, because the program writes to the same terminal.
type soloReport struct {
	mu     sync.Mutex // guards report.progress and done
	report *say.Reporter
	done   *event.Done // nil until the job has finished

	once       sync.Once // for Close
	stop, over chan struct{}
}

// newSoloReport returns a report on the outputs of out. Close ends it.
func newSoloReport(out spec.Output) *soloReport {
	s := &soloReport{report: say.NewReporter(&out, nil), stop: make(chan struct{}), over: make(chan struct{})}
	go s.run()
	return s
}

// run shows the progress until stop is closed.
func (s *soloReport) run() {
	defer close(s.over)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	s.show(time.Now())
	for {
		select {
		case now := <-tick.C:
			s.show(now)
		case <-s.stop:
			return
		}
	}
}

// show shows the progress at now.
func (s *soloReport) show(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.ShowProgress(now)
}

// Emit implements event.Sink.
func (s *soloReport) Emit(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Observe(e, time.Now())
	if done, ok := e.Body.(event.Done); ok {
		s.done = &done
	}
}

// Close writes the result, if there is one, and waits until all lines are written.
func (s *soloReport) Close() (err error) {
	s.once.Do(func() {
		close(s.stop)
		<-s.over
		last := ""
		if s.done != nil {
			last = printable.Line(s.done.Line())
		}
		err = s.report.Console.Close(context.Background(), last)
	})
	return err
}
