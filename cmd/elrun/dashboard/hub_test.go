package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// kinds returns the kinds of messages.
func kinds(all []message) (out []string) {
	for _, m := range all {
		out = append(out, m.kind)
	}
	return out
}

// page is a page that applies messages as the script of the page does.
type page struct {
	s    timeline.Snapshot
	text map[string]string // by kind
}

// apply applies messages.
func (p *page) apply(t *testing.T, all []message) {
	t.Helper()
	for _, m := range all {
		var s timeline.Snapshot
		var text string
		var err error
		switch m.kind {
		case "snapshot", "delta":
			err = json.Unmarshal(m.data, &s)
		default:
			err = json.Unmarshal(m.data, &text)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch whole, fits := timeline.After(s, p.s); m.kind {
		case "snapshot":
			p.s = s
		case "delta":
			if !fits {
				t.Fatal("a delta does not fit")
			}
			p.s = whole
		default:
			p.text[m.kind] = text
		}
	}
}

// encoded returns a snapshot as text.
func encoded(t *testing.T, s timeline.Snapshot) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// decoded returns a snapshot as a page gets it.
func decoded(t *testing.T, s timeline.Snapshot) (out timeline.Snapshot) {
	t.Helper()
	if err := json.Unmarshal([]byte(encoded(t, s)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Pages that read at their own pace all have the latest snapshot after they have read.
func TestPagesFollow(t *testing.T) {
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			job := newFakeJob()
			h := &hub{job: job}
			defer h.close()
			var readers []*reader
			var pages []*page
			work := newTraining(3, "a", "b")
			deltas := 0
			for range 12 {
				if len(readers) < 4 && random.IntN(3) == 0 {
					r, ok := h.open()
					if !ok {
						t.Fatal("refused")
					}
					readers, pages = append(readers, r), append(pages, &page{text: map[string]string{}})
				}
				if len(readers) == 0 {
					continue
				}
				s := work.add(random.IntN(200))
				job.seen <- result{s: s}
				synctest.Wait()
				want := encoded(t, decoded(t, s))
				for i, r := range readers {
					if random.IntN(2) == 0 {
						continue
					}
					<-r.wake
					due := h.next(r)
					deltas += len(slices.DeleteFunc(kinds(due), func(k string) bool { return k != "delta" }))
					if pages[i].apply(t, due); encoded(t, pages[i].s) != want {
						t.Fatalf("seed %d: page %d differs from the snapshot after %v", seed, i, kinds(due))
					}
				}
			}
			if deltas == 0 {
				t.Errorf("seed %d: no deltas", seed)
			}
			for _, r := range readers {
				h.leave(r)
			}
			synctest.Wait()
			if h.stop != nil {
				t.Error("the job is watched without a page")
			}
		})
	}
}

// A launcher that does not answer is asked again, and pages know why there is no newer snapshot.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob()
		h := &hub{job: job}
		defer h.close()
		r, _ := h.open()
		p := page{text: map[string]string{}}
		work := newTraining(2, "a")
		for i, c := range []struct {
			next result
			want []string
		}{
			{result{s: work.add(1)}, []string{"snapshot"}},
			{result{err: errors.New("it is stopped")}, []string{"trouble"}},
			{result{s: work.add(2)}, []string{"delta", "trouble"}},
			{result{err: fmt.Errorf("job mnist: %w", launch.ErrNoJob)}, []string{"end"}},
		} {
			begun := time.Now()
			job.seen <- c.next
			if i == 2 && time.Since(begun) != retryPeriod {
				t.Errorf("asked again after %v", time.Since(begun))
			}
			<-r.wake
			due := h.next(r)
			if p.apply(t, due); !slices.Equal(kinds(due), c.want) {
				t.Errorf("%d: told %v, want %v", i, kinds(due), c.want)
			}
			if i == 1 && p.text["trouble"] != "it is stopped" || i == 2 && p.text["trouble"] != "" {
				t.Errorf("%d: trouble %q", i, p.text["trouble"])
			}
		}
		if p.text["end"] != "finished with status 0" {
			t.Errorf("the end is %q", p.text["end"])
		}
		// A page that comes later sees the last snapshot, and the end.
		late, _ := h.open()
		<-late.wake
		if due := h.next(late); !slices.Equal(kinds(due), []string{"snapshot", "end"}) {
			t.Errorf("a late page was told %v", kinds(due))
		}
	})
}

// A job that ends before its first snapshot has an end as well.
func TestEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob()
		h := &hub{job: job}
		defer h.close()
		r, _ := h.open()
		job.seen <- result{err: launch.ErrNoJob}
		<-r.wake
		if due := h.next(r); !slices.Equal(kinds(due), []string{"end"}) {
			t.Errorf("told %v", kinds(due))
		}
		late, _ := h.open()
		<-late.wake
		if due := h.next(late); !slices.Equal(kinds(due), []string{"end"}) {
			t.Errorf("a late page was told %v", kinds(due))
		}
	})
}
