package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Source is the way to the donors.
type Source interface {
	// Request asks a donor and returns its answer as a stream, which the caller closes,
	// early if it wants no more. ctx bounds the whole answer. An answer that the donor
	// broke off ends with an error other than io.EOF.
	Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error)
}

// Options say whom a joiner asks, and how patiently.
type Options struct {
	// Self names this joiner, unlike any other, in at most 256 bytes.
	Self string
	// Donors returns those that may be asked, the preferred ones first. It is called
	// again and again, from several goroutines; the caller does not change the slice
	// afterwards.
	Donors func() []string
	// MaxDonors bounds those in use at once; 0 means 8. Each costs its group a copy of
	// the state.
	MaxDonors int
	// Patience is how long a donor may send nothing before it counts as dead; 0 means 4 s.
	// It should be less than half of the donors' Lease.
	Patience time.Duration
	// MaxBytes bounds a snapshot, and an update; 0 means 1 TiB. Memory is taken only as
	// the bytes arrive.
	MaxBytes int64
	// Window is how long Follow watches the distance before it decides that it grows; 0
	// means 5 s. It takes two windows in a row.
	Window time.Duration
	// Slack is how long catching up may take for a joiner that counts as level, though it
	// is more than one step behind because steps are short; 0 means 50 ms.
	Slack time.Duration
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	if o.MaxDonors <= 0 {
		o.MaxDonors = 8
	}
	if o.Patience <= 0 {
		o.Patience = 4 * time.Second
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultBytes
	}
	if o.Window <= 0 {
		o.Window = 5 * time.Second
	}
	if o.Slack <= 0 {
		o.Slack = 50 * time.Millisecond
	}
	return o
}

// wait is how long an answer may wait for news: well below Patience.
func (o Options) wait() time.Duration { return o.Patience / 4 }

// names returns the donors to use at once.
func (o Options) names() []string {
	names := o.Donors()
	return names[:min(len(names), o.MaxDonors)]
}

var (
	errSilent = errors.New("sends nothing")
	errLost   = errors.New("no donor has the snapshot any more")
)

// client makes requests of one joiner.
type client struct {
	src Source
	o   Options
}

// answer is a donor's answer after its header. The caller closes it.
type answer struct {
	header
	*bufio.Reader
	stop func()
}

// ask sends a request and reads the header of the answer. A donor that sends nothing
// for Patience makes it, and reading the rest, fail.
func (c client) ask(ctx context.Context, donor string, r request) (*answer, error) {
	r.Who = c.o.Self
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	inner, cancel := context.WithCancelCause(ctx)
	alarm := time.AfterFunc(c.o.Patience, func() { cancel(errSilent) })
	stop := func() { alarm.Stop(); cancel(nil) }
	body, err := c.src.Request(inner, donor, line)
	alarm.Stop()
	if err != nil {
		stop()
		return nil, fmt.Errorf("%s of %s: %w", r.Do, donor, silence(inner, err))
	}
	a := &answer{stop: func() { stop(); body.Close() }}
	a.Reader = newLines(&watched{body, inner, alarm, c.o.Patience})
	if a.header, err = readHeader(a.Reader, c.o.MaxBytes); err != nil {
		a.stop()
		return nil, fmt.Errorf("%s of %s: %w", r.Do, donor, err)
	}
	return a, nil
}

// header is ask where no more than the header is wanted.
func (c client) header(ctx context.Context, donor string, r request) (header, error) {
	a, err := c.ask(ctx, donor, r)
	if err != nil {
		return header{}, err
	}
	a.stop()
	return a.header, nil
}

// silence names the cause if err came of a donor that sends nothing.
func silence(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// watched cancels a request during which a single read takes longer than patience. Time
// that the reader spends elsewhere does not count.
type watched struct {
	r        io.Reader
	ctx      context.Context
	alarm    *time.Timer
	patience time.Duration
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	w.alarm.Reset(w.patience)
	n, err := w.r.Read(p)
	w.alarm.Stop()
	if err != nil && err != io.EOF {
		err = silence(w.ctx, err)
	}
	return n, err
}

// gather sends a request to all donors at once, and returns the headers of the answers.
// When half of them are there it waits for the rest only as long again, and a little:
// one that hangs must not hold up the others, whose steps go on.
func (c client) gather(ctx context.Context, donors []string, r request) map[string]header {
	type result struct {
		donor string
		header
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan result, len(donors))
	var asking sync.WaitGroup
	for _, donor := range donors {
		asking.Go(func() {
			h, err := c.header(ctx, donor, r)
			results <- result{donor, h, err}
		})
	}
	defer asking.Wait()
	defer cancel()

	got := map[string]header{}
	start := time.Now()
	grace := time.NewTimer(c.o.Patience)
	defer grace.Stop()
	for range donors {
		select {
		case res := <-results:
			if res.err != nil {
				continue
			}
			if got[res.donor] = res.header; 2*len(got) >= len(donors) && 2*(len(got)-1) < len(donors) {
				grace.Reset(min(c.o.Patience, time.Since(start)+c.o.Patience/16))
			}
		case <-grace.C:
			return got
		}
	}
	return got
}
