package wish

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// made makes a wish in another goroutine, and returns a function that waits for its answer. The wish waits when made returns.
func made(t *testing.T, w *Wishes) (answer func() (Saved, error)) {
	var out Saved
	var err error
	done := make(chan struct{})
	go func() {
		out, err = w.Make(t.Context(), 0, true)
		close(done)
	}()
	synctest.Wait()
	return func() (Saved, error) {
		<-done
		return out, err
	}
}

// A write fulfils the wishes for its step and for those before, also wishes that come while it is under way.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Wishes)
		w.Open("/ck")
		w.Due(7, true)
		first := made(t, w)
		if !w.Due(8, true) || !w.Due(9, true) {
			t.Fatal("no checkpoint is due after a wish")
		}
		ended := w.Begin(9)
		second := made(t, w)
		if w.Due(10, true) {
			t.Error("a second checkpoint is due for a wish that the first one fulfils")
		}
		ended("/ck/9", nil)
		for _, answer := range []func() (Saved, error){first, second} {
			if s, err := answer(); err != nil || s.Step != 9 || s.Path != "/ck/9" || s.Failed != "" || !strings.Contains(s.String(), "step 9: /ck/9") {
				t.Errorf("%+v, error %v", s, err)
			}
		}
		// A later wish is not fulfilled by a file of before.
		third := made(t, w)
		if s, err := third(); err != nil || s.Settled() || s.Since != 10 {
			t.Errorf("%+v, error %v", s, err)
		}
	})
}

// After a write that failed, a new wish is for another write.
func TestFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Wishes)
		w.Open("/ck")
		w.Due(7, true)
		answer := made(t, w)
		w.Begin(7)("", errors.New("no space left"))
		if s, err := answer(); err != nil || s.Path != "" || !strings.Contains(s.Failed, "no space left") {
			t.Errorf("%+v, error %v", s, err)
		}
		if s, err := made(t, w)(); err != nil || s.Settled() || s.Since != 8 {
			t.Errorf("again: %+v, error %v", s, err)
		}
	})
}

// A member that no longer writes, or that leaves before the end, sends those who wish elsewhere; at the end of the training there is no
// more checkpoint.
func TestElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *Wishes)
		failed string
	}{
		"another rank": {func(w *Wishes) { w.Due(8, false) }, ""},
		"left":         {func(w *Wishes) { w.Close(false) }, ""},
		"ended":        {func(w *Wishes) { w.Close(true) }, "has ended after step 7"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := new(Wishes)
			w.Open("/ck")
			w.Due(7, true)
			answer := made(t, w)
			c.change(w)
			s, err := answer()
			if c.failed == "" && !errors.Is(err, ErrElsewhere) || c.failed != "" && (err != nil || !strings.Contains(s.Failed, c.failed)) || s.Path != "" {
				t.Errorf("%s: %+v, error %v", name, s, err)
			}
		})
	}
}

// A wish ends with its context, and stays.
func TestStays(t *testing.T) {
	w := new(Wishes)
	w.Open("/ck")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := w.Make(ctx, 0, true); err != nil || s.Settled() || s.Since != 1 || !w.Due(1, true) {
		t.Errorf("%+v, error %v", s, err)
	}
}
