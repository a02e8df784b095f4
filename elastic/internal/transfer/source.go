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

// Source is the access to the donors.
type Source interface {
	// Request sends a request to a donor and returns the answer as a stream. The caller closes the
	// stream; closing it early cancels the remaining answer. ctx bounds the whole answer. An answer
	// that the donor has aborted ends with an error other than io.EOF.
	Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error)
}

// Options are the donors and the timeouts of a newcomer.
type Options struct {
	// Self is the unique name of this newcomer, at most 256 bytes.
	Self string
	// Donors returns the available donors, the preferred donors first. It is called repeatedly,
	// from several goroutines; the caller must not change the slice afterwards.
	Donors func() []string
	// MaxDonors bounds the donors in use at the same time; 0 means 8. Each donor in use has to make
	// a copy of its state.
	MaxDonors int
	// Patience is the time without data after which a donor counts as dead; 0 means 4 s. Patience
	// should be less than half of the donors' Lease.
	Patience time.Duration
	// MaxBytes bounds a snapshot, and an update, in bytes; 0 means 1 TiB. Memory is allocated only
	// as the bytes arrive.
	MaxBytes int64
	// Window is the time over which Follow observes whether the number of missing steps shrinks; 0
	// means 5 s. After two such windows in a row without success Follow gives up.
	Window time.Duration
	// Slack is a tolerance for short steps: a newcomer that is more than one step behind still
	// counts as level if it applies the missing steps within Slack; 0 means 50 ms.
	Slack time.Duration
}

// withDefaults returns o with defaults in place of zeros.
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

// wait returns the time for which a donor may delay an answer until there is data. It is well below
// Patience, so that such a delay does not count as silence.
func (o Options) wait() time.Duration { return o.Patience / 4 }

// names returns the donors to use at the same time, at most MaxDonors.
func (o Options) names() []string {
	names := o.Donors()
	return names[:min(len(names), o.MaxDonors)]
}

var (
	errSilent = errors.New("sends nothing")
	errLost   = errors.New("no donor has the snapshot any more")
)

// client sends the requests of one newcomer.
type client struct {
	src Source
	o   Options
}

// answer is a donor's answer, read up to the end of its header. The caller must call stop.
type answer struct {
	header
	*bufio.Reader
	stop func() // cancels the request and closes the stream
}

// ask sends a request and reads the header of the answer. If the donor sends nothing for Patience,
// ask or a later read of the answer fails with errSilent.
func (c client) ask(ctx context.Context, donor string, r request) (*answer, error) {
	r.Who = c.o.Self
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	inner, cancel := context.WithCancelCause(ctx)
	// The alarm runs while the request is sent, and later during each read (watched).
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

// header is like ask, for requests whose answer is only a header.
func (c client) header(ctx context.Context, donor string, r request) (header, error) {
	a, err := c.ask(ctx, donor, r)
	if err != nil {
		return header{}, err
	}
	a.stop()
	return a.header, nil
}

// silence adds errSilent to err if a silent donor was the cause.
func silence(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// watched cancels a request if a single read takes longer than patience. Time between reads does
// not count.
type watched struct {
	// r reads the answer from the network.
	r        io.Reader
	ctx      context.Context // cancels the request
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

// gather sends a request to all donors at once, and returns the headers of the answers, by donor.
// When half of the donors have answered, gather waits for the others only as long again, and a
// little longer: a donor that hangs must not delay the newcomer, because the other donors continue
// to train.
func (c client) gather(ctx context.Context, donors []string, r request) map[string]header {
	type result struct {
		donor string
		header
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	// The channel has room for all results, so that a late donor's goroutine ends without a reader.
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
			got[res.donor] = res.header
			// This is true once, for the answer with which half of the donors have answered.
			if 2*len(got) >= len(donors) && 2*(len(got)-1) < len(donors) {
				grace.Reset(min(c.o.Patience, time.Since(start)+c.o.Patience/16))
			}
		case <-grace.C:
			return got
		}
	}
	return got
}
