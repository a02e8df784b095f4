package inpeer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/wire"
)

// figuresRequest is the first byte of a request of a member for figures of this peer's launcher. The bytes of package elastic
// are others. The index of the first peer follows, as 4 bytes, and the answer is a page (timeline.Part).
const figuresRequest = 'f'

const (
	// figuresPatience bounds the time in which a member, and a launcher, answers.
	figuresPatience = 2 * time.Second
	// maxInquiries bounds the inquiries that are under way in each direction.
	maxInquiries = 16
)

// inquiries passes inquiries for figures on: those of this peer's launcher to members, and those of members to the launcher. It
// is safe for concurrent use.
type inquiries struct {
	post func(wire.Message) // sends to the launcher

	mu      sync.Mutex
	seq     int                   // of the last inquiry at the launcher
	waiting map[int]chan<- []byte // by seq; each has room for the answer
	asking  int                   // inquiries of the launcher that are under way
}

// ask carries out an inquiry of the launcher: request makes a request to a member. The launcher gets an empty page if too
// many are under way, or the member does not answer, and then asks another one.
func (i *inquiries) ask(ctx context.Context, what wire.Inquiry, request func(context.Context, elastic.ID, []byte) (io.ReadCloser, error)) {
	var page []byte
	defer func() { i.post(wire.Message{Figures: &wire.Figures{Seq: what.Seq, Page: page}}) }()
	i.mu.Lock()
	if i.asking >= maxInquiries {
		i.mu.Unlock()
		return
	}
	i.asking++
	i.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, figuresPatience)
	defer cancel()
	page, _ = readPage(request(ctx, what.Of, binary.LittleEndian.AppendUint32([]byte{figuresRequest}, uint32(what.From))))
	i.mu.Lock()
	i.asking--
	i.mu.Unlock()
}

// readPage reads the answer to a request.
func readPage(r io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer r.Close()
	page, err := io.ReadAll(io.LimitReader(r, timeline.MaxPart+1))
	if err == nil && len(page) > timeline.MaxPart {
		err = fmt.Errorf("a page of more than %d bytes", timeline.MaxPart)
	}
	if err != nil {
		return nil, err
	}
	return page, nil
}

// errBusy refuses an inquiry of a member.
var errBusy = errors.New("launch: too many inquiries at the same time")

// serve answers the request of a member, by an inquiry at the launcher.
func (i *inquiries) serve(ctx context.Context, request []byte, w io.Writer) error {
	if len(request) != 4 {
		return fmt.Errorf("launch: inquiry of %d bytes, want 4", len(request))
	}
	answer := make(chan []byte, 1)
	i.mu.Lock()
	if len(i.waiting) >= maxInquiries {
		i.mu.Unlock()
		return errBusy
	}
	if i.waiting == nil {
		i.waiting = make(map[int]chan<- []byte)
	}
	i.seq++
	seq := i.seq
	i.waiting[seq] = answer
	i.mu.Unlock()
	defer func() {
		i.mu.Lock()
		delete(i.waiting, seq)
		i.mu.Unlock()
	}()
	i.post(wire.Message{Inquiry: &wire.Inquiry{Seq: seq, From: int(binary.LittleEndian.Uint32(request))}})
	ctx, cancel := context.WithTimeout(ctx, figuresPatience)
	defer cancel()
	select {
	case page := <-answer:
		_, err := w.Write(page)
		return err
	case <-ctx.Done():
		return fmt.Errorf("launch: the launcher does not answer: %w", context.Cause(ctx))
	}
}

// answered passes the launcher's answer to serve.
func (i *inquiries) answered(f wire.Figures) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if answer := i.waiting[f.Seq]; answer != nil {
		delete(i.waiting, f.Seq)
		answer <- f.Page
	}
}

// serveFigures answers a request of a member for figures of this peer's launcher.
func (p *peer) serveFigures(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error {
	if g := p.admission.currentGroup(); g == nil || g.View().Rank(from) < 0 {
		return fmt.Errorf("launch: %s is no member of the job", from.Short())
	}
	return p.inquiries.serve(ctx, request, w)
}
