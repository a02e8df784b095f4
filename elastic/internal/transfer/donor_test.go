package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

// write returns a function that writes n bytes.
func write(n int) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(make([]byte, n))
		return err
	}
}

// ask sends a request to a donor, and returns the header and the bytes of the answer.
func ask(t testing.TB, d *Donor, r request) (header, []byte) {
	t.Helper()
	if r.Who == "" {
		r.Who = "joiner"
	}
	line, _ := json.Marshal(r)
	var out bytes.Buffer
	if err := d.Serve(t.Context(), line, &out); err != nil {
		t.Fatal(err)
	}
	lines := newLines(&out)
	h, err := readHeader(lines, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(lines)
	return h, rest
}

// commit makes the calls to a donor that a member makes after a step.
func commit(t testing.TB, d *Donor, step int64) {
	t.Helper()
	if d.Wanted(step) {
		if err := d.Snapshot(step, write(100)); err != nil {
			t.Fatal(err)
		}
	}
	if d.Logging() {
		if err := d.Update(step, write(10)); err != nil {
			t.Fatal(err)
		}
	}
}

// readyDonor returns a donor with a snapshot of a step, and the two updates after it.
func readyDonor(t testing.TB, step int64) *Donor {
	d := NewDonor(step-1, Config{Chunk: 40, Replays: true})
	ask(t, d, request{Do: opTake, Step: step})
	for s := step; s <= step+2; s++ {
		commit(t, d, s)
	}
	return d
}

func TestDonorRequests(t *testing.T) {
	d := readyDonor(t, 5)
	defer d.Close()
	if h, _ := ask(t, d, request{Do: opWhere}); h.At != 7 || h.Bytes != 100 || !h.Replays || len(h.Held) != 1 || h.Held[0] != (held{5, 20}) {
		t.Errorf("where: %+v", h)
	}
	h, raw := ask(t, d, request{Do: opManifest, Step: 5, WaitMS: maxWaitMS})
	m, err := readManifest(bytes.NewReader(raw), 5, h)
	if err != nil || m.bytes != 100 || len(m.hashes) != 3 {
		t.Errorf("manifest: %+v, %v", m, err)
	}
	if h, raw := ask(t, d, request{Do: opChunks, Step: 5, First: 1, Count: 2}); h.Count != 2 || len(raw) != 60 {
		t.Errorf("chunks: %+v, %d bytes", h, len(raw))
	}
	if h, _ := ask(t, d, request{Do: opChunks, Step: 6, Count: 1}); h.Code != codePast {
		t.Errorf("chunks of another step: %+v", h)
	}
	if h, _ := ask(t, d, request{Do: opTake, Step: 7}); h.Code != codePast || h.At != 7 {
		t.Errorf("take of the present step: %+v", h)
	}
	if h, raw := ask(t, d, request{Do: opUpdates, Step: 6}); h.Code != codeOK || h.Count != 1 || !bytes.HasPrefix(raw, []byte(`{"step":7,`)) {
		t.Errorf("updates: %+v %q", h, raw)
	}
	if h, _ := ask(t, d, request{Do: opUpdates, Who: "other", Step: 2}); h.Code != codeGone {
		t.Errorf("updates that never were: %+v", h)
	}
	if h, _ := ask(t, d, request{Do: opUpdates, Step: 7, WaitMS: 1}); h.Code != codeOK || h.Count != 0 {
		t.Errorf("updates of the future: %+v", h)
	}
	ask(t, d, request{Do: opEnd})
	if d.Logging() || d.Memory() != 0 {
		t.Errorf("after the end: logging %v, %d bytes", d.Logging(), d.Memory())
	}
}

// Hashing a large snapshot may take longer than a newcomer's patience: until it is done the donor
// answers that the manifest is pending.
func TestManifestIsPending(t *testing.T) {
	d := NewDonor(4, Config{Chunk: 40})
	defer d.Close()
	ask(t, d, request{Do: opTake, Step: 5})
	s := d.snapshots.by[5]
	_ = write(100)(&s.data)
	s.phase = ready
	if h, _ := ask(t, d, request{Do: opManifest, Step: 5, WaitMS: 1}); h.Code != codePending {
		t.Errorf("before the hashes: %+v", h)
	}
	d.hash(s)
	if h, _ := ask(t, d, request{Do: opManifest, Step: 5}); h.Code != codeOK || h.Count != 3 {
		t.Errorf("after the hashes: %+v", h)
	}
}

func TestServeErrors(t *testing.T) {
	d := readyDonor(t, 5)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for req, ctx := range map[string]context.Context{
		"{":                        t.Context(),
		`{"do":"dance","who":"a"}`: t.Context(),
		`{"do":"chunks","who":"a","step":5,"count":4}`:               t.Context(),
		`{"do":"chunks","who":"a","step":5,"first":4}`:               t.Context(),
		`{"do":"manifest","who":"a","step":9,"wait_ms":50000}`:       ended,
		`{"do":"chunks","who":"a","step":5,"count":3}`:               ended,
		`{"do":"updates","who":"a","step":7,"count":3,"wait_ms":50}`: ended,
	} {
		if err := d.Serve(ctx, []byte(req), io.Discard); err == nil {
			t.Errorf("%s: no error", req)
		}
	}
	if err := d.Serve(t.Context(), []byte(`{"do":"chunks","who":"a","step":5,"count":3}`), failing{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the peer broke off: error %v", err)
	}
	d.Close()
	if err := d.Serve(t.Context(), []byte(`{"do":"where","who":"a"}`), io.Discard); !errors.Is(err, errClosed) {
		t.Errorf("closed: error %v", err)
	}
}

func TestErrorsOfTheOwner(t *testing.T) {
	d := NewDonor(3, Config{Replays: true})
	defer d.Close()
	bad := errors.New("bad state")
	fail := func(io.Writer) error { return bad }
	ask(t, d, request{Do: opTake, Step: 4})
	if !d.Wanted(4) {
		t.Fatal("not wanted")
	}
	if err := d.Snapshot(4, fail); !errors.Is(err, bad) || !strings.Contains(err.Error(), "step 4") {
		t.Errorf("snapshot: error %v", err)
	}
	if h, _ := ask(t, d, request{Do: opManifest, Step: 4}); h.Code != codePast {
		t.Errorf("a snapshot that failed: %+v", h)
	}
	ask(t, d, request{Do: opKeep, Step: 4})
	if err := d.Update(5, fail); !errors.Is(err, bad) {
		t.Errorf("update: error %v", err)
	}
	if err := d.Snapshot(9, fail); err != nil {
		t.Errorf("a snapshot that nobody wants is not written: %v", err)
	}
}

// The owner skips a step, like a member that has loaded the state of another member.
func TestStepsLeftOut(t *testing.T) {
	d := NewDonor(3, Config{Replays: true})
	defer d.Close()
	ask(t, d, request{Do: opTake, Step: 5})
	if d.Wanted(6) || d.Wanted(5) {
		t.Error("a snapshot whose step was left out is wanted")
	}
	ask(t, d, request{Do: opKeep, Step: 6})
	commit(t, d, 7)
	commit(t, d, 9)
	if h, _ := ask(t, d, request{Do: opUpdates, Step: 8}); h.Code != codeOK || h.Count != 1 {
		t.Errorf("updates after the gap: %+v", h)
	}
	if h, _ := ask(t, d, request{Do: opUpdates, Step: 6}); h.Code != codeGone {
		t.Errorf("updates over a gap: %+v", h)
	}
	if d.Logging() {
		t.Error("updates are kept for one that cannot use them")
	}
}

func TestDonorIsFull(t *testing.T) {
	d := NewDonor(3, Config{Snapshots: 1})
	defer d.Close()
	ask(t, d, request{Do: opTake, Step: 5})
	if h, _ := ask(t, d, request{Do: opTake, Who: "other", Step: 6}); h.Code != codeFull {
		t.Errorf("a second snapshot: %+v", h)
	}
	if h, _ := ask(t, d, request{Do: opTake, Who: "other", Step: 5}); h.Code != codePending {
		t.Errorf("the same one for another joiner: %+v", h)
	}
	d.Release("joiner")
	if !d.Wanted(5) {
		t.Error("the other joiner needs it still")
	}
	if h, _ := ask(t, d, request{Do: opKeep, Step: 5}); h.Code != codeGone {
		t.Errorf("this donor keeps no updates: %+v", h)
	}
}

// Members that lag a little behind get the kept updates.
func TestKept(t *testing.T) {
	d := NewDonor(3, Config{Replays: true})
	defer d.Close()
	if d.KeptAfter() != 3 || d.Kept(2) != nil {
		t.Errorf("nothing is kept: after %d", d.KeptAfter())
	}
	d.Rest(true)
	for step := int64(4); step <= 6; step++ {
		commit(t, d, step)
		commit(t, d, step) // repeated calls for a step change nothing
	}
	for after := int64(2); after <= 6; after++ {
		want := int(6 - after)
		if after < 3 {
			want = 0
		}
		if got := d.Kept(after); len(got) != want || want > 0 && len(got[0]) != 10 {
			t.Errorf("after step %d: %d updates, not %d", after, len(got), want)
		}
	}
	if d.KeptAfter() != 3 {
		t.Errorf("kept after step %d", d.KeptAfter())
	}
	d.Wanted(7)
	if d.Kept(4) != nil || d.KeptAfter() != 7 {
		t.Error("the update of the committed step is missing, so nobody can be brought there")
	}
	d.Rest(false)
	if d.Memory() != 0 {
		t.Errorf("%d bytes are kept for nobody", d.Memory())
	}
}

// A donor keeps memory for a newcomer that sends no requests only until the lease expires.
func TestLeasesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := readyDonor(t, 5)
		defer d.Close()
		for range 5 {
			_ = pause.For(t.Context(), 10*time.Second)
			ask(t, d, request{Do: opChunks, Step: 5, Count: 1})
		}
		ask(t, d, request{Do: opKeep, Who: "other", Step: 6})
		if d.Memory() < 100 || !d.Logging() {
			t.Error("a joiner that is heard of has lost its snapshot")
		}
		_ = pause.For(t.Context(), 8*time.Second)
		ask(t, d, request{Do: opKeep, Who: "other", Step: 6})
		_ = pause.For(t.Context(), 8*time.Second)
		if n := d.Memory(); n == 0 || n > 50 {
			t.Errorf("%d bytes are kept: only an update is wanted", n)
		}
		_ = pause.For(t.Context(), 16*time.Second)
		if d.Memory() != 0 || d.Logging() {
			t.Errorf("%d bytes are kept for nobody", d.Memory())
		}
		ask(t, d, request{Do: opTake, Step: 20})
		_ = pause.For(t.Context(), 16*time.Second)
		if d.Wanted(20) {
			t.Error("a snapshot is wanted by nobody")
		}
	})
}

// A long answer renews the lease of its newcomer while the answer is sent.
func TestLongAnswerKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 40 << 10
		d := NewDonor(4, Config{Chunk: size, Replays: true, Rate: 1 << 10})
		defer d.Close()
		ask(t, d, request{Do: opTake, Step: 5})
		d.Wanted(5)
		if err := d.Snapshot(5, write(size)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if h, data := ask(t, d, request{Do: opChunks, Step: 5, Count: 1}); h.Code != codeOK || len(data) != size {
			t.Fatalf("%+v, %d bytes", h, len(data))
		}
		if took := time.Since(begun); took < 2*d.cfg.Lease || d.Memory() < size {
			t.Errorf("%d bytes are kept after an answer of %v", d.Memory(), took)
		}
	})
}

// A keep request that arrives after a request for later updates does not move the newcomer's lease
// back.
func TestLateKeep(t *testing.T) {
	d := readyDonor(t, 5)
	defer d.Close()
	ask(t, d, request{Do: opUpdates, Step: 6})
	if h, _ := ask(t, d, request{Do: opKeep, Step: 5}); h.Code != codeOK {
		t.Errorf("keep: %+v", h)
	}
	if h, _ := ask(t, d, request{Do: opUpdates, Step: 6}); h.Code != codeOK || h.Count != 1 {
		t.Errorf("updates: %+v", h)
	}
}

func TestReset(t *testing.T) {
	d := readyDonor(t, 5)
	ask(t, d, request{Do: opTake, Who: "other", Step: 9})
	ask(t, d, request{Do: opKeep, Who: "follower", Step: 6})
	d.Wanted(8)
	if !d.Wanted(9) {
		t.Fatal("not wanted")
	}
	// The state is replaced while Snapshot writes it, so the snapshot is void.
	err := d.Snapshot(9, func(w io.Writer) error { d.Reset(20); return nil })
	if h, _ := ask(t, d, request{Do: opWhere}); err != nil || h.At != 20 || len(h.Held) != 0 || d.Memory() != 0 || d.Logging() {
		t.Errorf("after a reset: %+v, %v", h, err)
	}
	d.Close()
	d.Close()
}

func TestManyLeases(t *testing.T) {
	d := NewDonor(3, Config{Replays: true})
	defer d.Close()
	for i := range maxLeases {
		ask(t, d, request{Do: opKeep, Who: string(rune('a' + i)), Step: 3})
	}
	for _, do := range []op{opKeep, opUpdates, opTake} {
		if h, _ := ask(t, d, request{Do: do, Who: "one more", Step: 4}); h.Code != codeFull {
			t.Errorf("%s: %+v", do, h)
		}
	}
}

// All answers of a donor together do not exceed its rate.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate = 2 << 20, 1 << 20
		d := NewDonor(0, Config{Rate: rate})
		defer d.Close()
		ask(t, d, request{Do: opTake, Step: 1})
		d.Wanted(1)
		if err := d.Snapshot(1, write(size)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		done := make(chan error)
		for _, who := range []string{"a", "b"} {
			go func() {
				line, _ := json.Marshal(request{Do: opChunks, Who: who, Step: 1, Count: 2})
				done <- d.Serve(t.Context(), line, io.Discard)
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		took := time.Since(start).Seconds()
		if want := 2.0 * size / rate; took < 0.95*want || took > 1.05*want {
			t.Errorf("twice %d bytes at %d a second took %.2f s", size, rate, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		line, _ := json.Marshal(request{Do: opChunks, Who: "a", Step: 1, Count: 2})
		if err := d.Serve(ctx, line, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// Donors allocate the memory of a snapshot before its step.
func TestMemoryIsReady(t *testing.T) {
	d := NewDonor(3, Config{Chunk: 1 << 10})
	defer d.Close()
	d.stateSize = 5000 // as after an earlier snapshot
	ask(t, d, request{Do: opTake, Step: 4})
	d.mu.Lock()
	spare := d.snapshots.by[4].data.spare
	d.mu.Unlock()
	if len(spare) != 5 {
		t.Fatalf("%d chunks are ready, not 5", len(spare))
	}
	first := &spare[4][:1][0]
	d.Wanted(4)
	if err := d.Snapshot(4, write(5000)); err != nil || &d.snapshots.by[4].data.pieces[0][0] != first {
		t.Errorf("the memory was not used: %v", err)
	}
}

// The cost of a step without newcomers.
func BenchmarkWanted(b *testing.B) {
	d := NewDonor(0, Config{})
	defer d.Close()
	for s := int64(1); b.Loop(); s++ {
		if d.Wanted(s) || d.Logging() {
			b.Fatal("nobody has asked")
		}
	}
}

// The cost of a step with a snapshot.
func BenchmarkSnapshot(b *testing.B) {
	state := make([]byte, 64<<20)
	d := NewDonor(0, Config{})
	defer d.Close()
	b.SetBytes(int64(len(state)))
	for s := int64(1); b.Loop(); s++ {
		b.StopTimer()
		ask(b, d, request{Do: opTake, Step: s})
		d.Wanted(s)
		b.StartTimer()
		if err := d.Snapshot(s, func(w io.Writer) error { _, err := w.Write(state); return err }); err != nil {
			b.Fatal(err)
		}
	}
}
