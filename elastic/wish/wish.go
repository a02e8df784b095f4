// Package wish keeps the wishes for checkpoints at the member of a group that writes them. A wish is a step: a checkpoint of it, or of a
// later one, fulfils the wish. So a wish can be made again at another member, if the one that writes dies, and several people share
// one checkpoint.
package wish

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// Saved is the answer to the wish for a checkpoint. Either Path or Failed is set once the wish is settled.
type Saved struct {
	// Since names the wish: a checkpoint of this step, or of a later one, fulfils it. It is 0 until a member has taken the
	// wish.
	Since int64  `json:"since,omitempty"`
	Step  int64  `json:"step,omitempty"` // of the checkpoint
	Path  string `json:"path,omitempty"` // of the file of the checkpoint, at the member that has written it
	By    string `json:"by,omitempty"`   // short ID of the member that writes
	Host  string `json:"host,omitempty"` // of that member
	// Failed is why the wish is not fulfilled, for people.
	Failed string `json:"failed,omitempty"`
}

// Settled reports whether the checkpoint is written, or is certain not to be.
func (s Saved) Settled() bool { return s.Path != "" || s.Failed != "" }

// String returns a line for people: where the checkpoint is, why there is none, or who will write it.
func (s Saved) String() string {
	on := ""
	if s.Host != "" {
		on = " on " + s.Host
	}
	switch {
	case s.Failed != "":
		return s.Failed
	case s.Path != "":
		return fmt.Sprintf("checkpoint of step %d%s: %s", s.Step, on, s.Path)
	}
	return fmt.Sprintf("peer %s%s writes a checkpoint at its next boundary between two steps", s.By, on)
}

// Wait is how long a member waits for its write before it answers that the wish is not settled yet.
const Wait = time.Second

// ErrElsewhere refuses a wish: this member does not write the checkpoints.
var ErrElsewhere = errors.New("it does not write the checkpoints")

// Wishes are the wishes for checkpoints at a member, and its last write. The zero value is that of a member whose loop saves none. A
// member that does not write forgets its wishes; those who wish then ask the one that does. The methods are safe for concurrent
// use.
type Wishes struct {
	mu      sync.Mutex
	dir     *string // folder of checkpoints, "" for none; nil if the loop saves none
	over    bool    // the job has come to its end
	left    bool    // this member has left the loop before the end of the job
	stable  int64   // last step that was told to Due
	wanted  int64   // a checkpoint of this step or a later one is wanted; 0 for none
	begun   int64   // step of the last write that has begun
	last    Saved   // the last write that has ended; zero before
	dropped int     // how often wishes were forgotten
	changed chan struct{}
}

// wake wakes those who wait. The caller holds the lock.
func (w *Wishes) wake() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// Open begins a loop that writes checkpoints into a folder; "" means that it could, but has no folder.
func (w *Wishes) Open(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dir, w.over, w.left, w.stable, w.wanted, w.begun, w.last = &dir, false, false, 0, 0, 0, Saved{}
	w.wake()
}

// Close ends the loop. finished means that no member goes on.
func (w *Wishes) Close(finished bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over, w.left = finished, !finished
	w.wake()
}

// Make waits until the wish since is settled, at most for Wait, and makes it first if it is 0. training is false before the program has
// begun to train. The error is ErrElsewhere.
func (w *Wishes) Make(ctx context.Context, since int64, training bool) (Saved, error) {
	ctx, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	w.mu.Lock()
	dropped := w.dropped
	if since == 0 {
		since = max(w.stable, 1)
		if w.last.Failed != "" && w.last.Step >= since {
			since = w.last.Step + 1 // the cause of the failure may be gone by now
		}
	}
	w.mu.Unlock()
	for {
		out, changed, err := w.look(since, dropped, training)
		if err != nil || out.Settled() {
			return out, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return out, nil
		}
	}
}

// look returns what is known of a wish, and a channel that is closed when more is. It keeps the wish until a write begins that
// fulfils it.
func (w *Wishes) look(since int64, dropped int, training bool) (Saved, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Saved{Since: since}
	switch {
	case w.dropped != dropped || w.left:
		return Saved{}, nil, ErrElsewhere
	case w.last.Step >= since:
		out.Step, out.Path, out.Failed = w.last.Step, w.last.Path, w.last.Failed
	case w.over:
		out.Failed = fmt.Sprintf("the training has ended after step %d, before a checkpoint could be written: its event log and its folder show the last one", w.stable)
	case w.dir == nil && !training:
		out.Failed = "the program has not begun to train: try again later"
	case w.dir == nil:
		out.Failed = "the loop of the program saves no checkpoints: use checkpoint.NewState, trainer.Config.Checkpoint, or checkpoint= of elrun.torch.Job"
	case *w.dir == "":
		out.Failed = "the job has no folder for checkpoints: start it with one, by --checkpoint DIR of the program, Checkpoint.Dir, or checkpoint= of Job"
	case w.begun < since && (w.wanted == 0 || since < w.wanted):
		w.wanted = since
	}
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return out, w.changed, nil
}

// Due records that all members have committed a step, and reports whether a wish makes a checkpoint of it due. mine is true if this
// member writes the checkpoints. Due stays true until Begin is called.
func (w *Wishes) Due(step int64, mine bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stable = step
	if !mine && w.wanted > 0 {
		w.wanted = 0
		w.dropped++
		w.wake()
	}
	return w.wanted > 0 && step >= w.wanted
}

// Begin records that a write of a step begins, and returns the function to call at its end.
func (w *Wishes) Begin(step int64) (ended func(path string, err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = step
	if step >= w.wanted {
		w.wanted = 0
	}
	w.wake()
	return func(path string, err error) { w.end(step, path, err) }
}

// end records the end of a write.
func (w *Wishes) end(step int64, path string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if whole, err := filepath.Abs(path); err == nil {
		path = whole // those who wish may be in another folder
	}
	w.last = Saved{Step: step, Path: path}
	if err != nil {
		w.last = Saved{Step: step, Failed: fmt.Sprintf("the checkpoint of step %d could not be written, and the job goes on: %v", step, err)}
	}
	w.wake()
}
