package elastic

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/cespare/xxhash/v2"
)

// heldState is the State that this member holds in common with the others, with the member's
// settings, and with the donor that sends the State to newcomers. The goroutine that calls Next
// owns it, except the registration.
type heldState struct {
	registration
	runIDs
	updates  int64            // the last step that was committed or applied here, whose update State can write; -1 after a Load
	void     bool             // State is not the job's state and must be copied
	fresh    bool             // this identity has joined and was in no session yet
	torn     bool             // State is undefined, as a Load has failed
	levels   bool             // this peer was in a session whose members were all level
	digests  digests          // the cost of the last digest
	advanced func(step int64) // called with the step of State after it was committed or copied
}

// account returns this member's report on its state, with the digest of the state if the argument
// digest is true.
func (h *heldState) account(digest bool) (account, error) {
	a := account{fresh: h.fresh, holds: h.state != nil, settings: settingsHash(h.settings), job: h.job, run: h.run}
	switch {
	case h.state == nil:
	// A state that is void has no step, so this member has to copy another member's state.
	case h.void:
		a.step = -1
	default:
		a.step, a.updates = h.state.Step(), h.updatesFrom()
	}
	if !digest || h.state == nil || a.step < 0 {
		return a, nil
	}
	var err error
	a.digest, err = h.digest()
	return a, err
}

// updatesFrom returns the first step whose update this member can give.
func (h *heldState) updatesFrom() int64 {
	step := h.state.Step()
	if _, replays := h.state.(Replayer); !replays || h.updates != step {
		return step + 1
	}
	return min(step, h.donor.KeptAfter()+1)
}

// commit records that the state has committed a step, and offers the step to newcomers.
func (h *heldState) commit(step int64) error {
	h.updates = step
	h.advanced(step)
	return h.offerStep()
}

// beginAnew makes this peer's State the state of the job. It is called when no other member lives.
func (h *heldState) beginAnew() {
	h.void, h.fresh, h.levels = false, false, false
	if h.run == 0 {
		h.run = h.job
	}
	if h.state != nil {
		h.donor.Reset(max(h.state.Step(), 0))
	}
}

// install applies one update, or loads a whole state. If loading fails the state is undefined
// (torn).
func (h *heldState) install(r io.Reader, update bool) error {
	if update {
		b, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("read a copied update: %w", err)
		}
		return h.apply(h.state.(Replayer), b)
	}
	// A loaded state cannot write the update of its last step.
	h.updates = -1
	if err := h.state.Load(r); err != nil {
		h.void, h.torn = true, true
		return fmt.Errorf("load a copied state: %w", err)
	}
	h.void, h.torn = false, false
	h.donor.Reset(h.state.Step())
	h.advanced(h.state.Step())
	return nil
}

// apply applies the update of the next step to the state, and then offers this step to newcomers.
func (h *heldState) apply(r Replayer, update []byte) error {
	if err := r.Apply(bytes.NewReader(update)); err != nil {
		return fmt.Errorf("apply a copied update: %w", err)
	}
	return h.commit(r.Step())
}

// digest returns a fingerprint (xxHash64) of the state, never 0.
func (h *heldState) digest() (uint64, error) {
	begun := time.Now()
	hash := xxhash.New()
	if err := hashState(hash, h.state); err != nil {
		return 0, fmt.Errorf("save the state after step %d: %w", h.state.Step(), err)
	}
	h.digests = digests{took: time.Since(begun), at: time.Now()}
	return max(hash.Sum64(), 1), nil
}
