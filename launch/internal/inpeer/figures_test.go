package inpeer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
)

// An inquiry goes from a launcher to its peer, to a member, to that member's launcher, and the page goes back.
func TestInquiries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var theirs inquiries
		theirs.post = func(m wire.Message) {
			theirs.answered(wire.Figures{Seq: m.Inquiry.Seq + 1, Page: []byte("to nobody")})
			go theirs.answered(wire.Figures{Seq: m.Inquiry.Seq, Page: []byte{byte(m.Inquiry.From)}})
		}
		var got []wire.Message
		own := inquiries{post: func(m wire.Message) { got = append(got, m) }}
		own.ask(t.Context(), wire.Inquiry{Seq: 5, Of: "them", From: 7}, func(ctx context.Context, of elastic.ID, request []byte) (io.ReadCloser, error) {
			var b bytes.Buffer
			if of != "them" || request[0] != figuresRequest {
				t.Errorf("asked %s: %q", of, request)
			}
			return io.NopCloser(&b), theirs.serve(ctx, request[1:], &b)
		})
		if len(got) != 1 || got[0].Figures == nil || got[0].Figures.Seq != 5 || string(got[0].Figures.Page) != "\x07" {
			t.Errorf("got %+v", got)
		}
		if len(theirs.waiting) > 0 || own.asking != 0 {
			t.Error("inquiries are left")
		}
	})
}

// A launcher that does not answer costs its members' peers a short wait, and too many inquiries are refused.
func TestInquiriesOfSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := inquiries{post: func(wire.Message) {}}
		for range maxInquiries {
			go func() { _ = silent.serve(t.Context(), make([]byte, 4), io.Discard) }()
		}
		synctest.Wait()
		if err := silent.serve(t.Context(), make([]byte, 4), io.Discard); !errors.Is(err, errBusy) {
			t.Errorf("beside %d others: %v", maxInquiries, err)
		}
		<-time.After(figuresPatience + 1)
		synctest.Wait()
		if err := silent.serve(t.Context(), make([]byte, 4), io.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of a silent launcher: %v", err)
		}
		if err := silent.serve(t.Context(), nil, io.Discard); err == nil {
			t.Error("a request without an index is answered")
		}
	})
}

// A member's answer is bounded, and without one the launcher gets an empty page.
func TestInquiryFails(t *testing.T) {
	var told []wire.Message
	own := inquiries{post: func(m wire.Message) { told = append(told, m) }}
	for name, request := range map[string]func(context.Context, elastic.ID, []byte) (io.ReadCloser, error){
		"gone": func(context.Context, elastic.ID, []byte) (io.ReadCloser, error) { return nil, elastic.ErrGone },
		"long": func(context.Context, elastic.ID, []byte) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20))), nil
		},
	} {
		told = nil
		own.ask(t.Context(), wire.Inquiry{Seq: 1, Of: "them"}, request)
		if own.asking != 0 || len(told) != 1 || told[0].Figures.Seq != 1 || len(told[0].Figures.Page) > 0 {
			t.Errorf("%s: %d are under way, told %+v", name, own.asking, told)
		}
	}
}

// A peer tells what its process uses all the time, or for a while after each request.
func TestUsageMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		u := (&usageMeter{}).start(false, func() { count.Add(1) })
		<-time.After(time.Hour)
		if count.Load() != 0 {
			t.Errorf("nobody asks, and it tells %d times", count.Load())
		}
		u.ask()
		u.ask()
		<-time.After(time.Hour)
		if want := int64(usageTerm / usagePeriod); count.Load() != want && count.Load() != want+1 {
			t.Errorf("it tells %d times, want %d", count.Load(), want)
		}
		count.Store(0)
		_ = u.Close()
		always := (&usageMeter{}).start(true, func() { count.Add(1) })
		<-time.After(10*usagePeriod - 1)
		_ = always.Close()
		if count.Load() != 11 {
			t.Errorf("it tells %d times, want 11", count.Load())
		}
	})
}
