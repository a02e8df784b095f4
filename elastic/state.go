package elastic

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/elrun/elrun/elastic/internal/transfer"
)

// State is the data that all members of a group hold in common: the model and all else that the
// next step depends on. Newcomers and members that lag behind receive a copy. The group calls the
// methods only in the goroutine that calls Sessions.Next and Committed.
type State interface {
	// Step returns the last committed step; 0 before the first.
	Step() int64
	// Save writes the whole state after Step(). Members that have committed the same steps must
	// write the same bytes, or else the State has a method Approximate() bool that returns true: then
	// a newcomer takes the bytes that most of its donors have, and does not accuse the others.
	Save(w io.Writer) error
	// Load replaces the state by a copy that another member saved. After an error the state is
	// undefined until a later Load has succeeded.
	Load(r io.Reader) error
}

// Watched is a State that is told of the steps of a loop, for example to save it. Steps trains Inner
// in its place.
type Watched interface {
	State
	// Inner returns the State, the same in each call.
	Inner() State
	// Stable is called when all members of a session have committed the step Inner().Step(): at each
	// member, at its entry into the session and between two turns, in the goroutine of the loop. It
	// may read the State. last means that no step follows. An error ends the loop at all members.
	Stable(s *Session, last bool) error
}

// Replayer is a State that can also be advanced by single steps, with fewer bytes than a copy of
// the whole state.
type Replayer interface {
	State
	// Update writes the difference from the state after Step()-1 to the state after Step(), for
	// example the reduced gradient. It is called only if this peer has committed that step since
	// the last Load.
	Update(w io.Writer) error
	// Apply commits the step after Step() from another member's Update. After an error the state is
	// unchanged.
	Apply(r io.Reader) error
}

// terms are what a program has registered with its group, and what the group compares with the
// offers of newcomers.
type terms struct {
	state    State // held in common by all members; nil for none
	settings []Setting
	donor    *transfer.Donor // sends state to newcomers; nil without a state
	first    int64           // last step of the first call of Steps; 0 for none
	begun    bool            // Next was called: state and settings are final
}

// registration holds the terms. The goroutine that calls Next writes them under the lock, and reads
// them without it. Other goroutines, which answer requests, call registered.
type registration struct {
	mu sync.Mutex
	terms
}

// register changes the terms.
func (r *registration) register(change func(*terms)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.terms)
}

// registered returns the present terms.
func (r *registration) registered() terms {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms
}

// heldState is the State that this member holds in common with the others, with the member's
// settings, and with the donor that sends the State to newcomers. The goroutine that calls Next
// owns it, except the registration.
type heldState struct {
	registration
	ids          runIDs
	updates      int64            // the last step that was committed or applied here, whose update State can write; -1 after a Load
	void         bool             // State is not the job's state and must be copied
	fresh        bool             // this identity has joined and was in no session yet
	torn         bool             // State is undefined, as a Load has failed
	synchronized bool             // this peer was in a session whose members were all level
	digests      digests          // the cost of the last digest
	changes      changes          // whether the loop changes State
	advanced     func(step int64) // called with the step of State after it was committed or copied
}

// account returns this member's report on its state, with the digest of the state if the argument
// digest is true.
func (h *heldState) account(digest bool) (account, error) {
	a := account{fresh: h.fresh, holds: h.state != nil, settings: settingsHash(h.settings), job: h.ids.job, run: h.ids.run}
	switch {
	case h.state == nil:
	// A state that is void has no step, so this member has to copy another member's state.
	case h.void:
		a.step = -1
	default:
		a.step, a.updates = h.state.Step(), h.updatesFrom()
	}
	if h.state == nil || a.step < 0 {
		return a, nil
	}
	var err error
	if _, slices := observed(h.state); slices {
		a.still, err = h.changes.none(h.state)
	}
	if digest && err == nil {
		a.digest, err = h.digest()
	}
	return a, err
}

// settingsHash returns a hash (xxHash64) of settings that does not depend on their order; never 0.
func settingsHash(settings []Setting) uint64 {
	ordered := slices.SortedFunc(slices.Values(settings), func(a, b Setting) int { return cmp.Compare(a.Name, b.Name) })
	h := xxhash.New()
	for _, s := range ordered {
		fmt.Fprintf(h, "%q=%q\n", s.Name, s.Value) // never fails
	}
	return max(h.Sum64(), 1)
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

// offerStep passes the present step to the donor, with a snapshot if a newcomer wants one, and with
// the update of the step if the donor keeps a log.
func (h *heldState) offerStep() error {
	step := h.state.Step()
	if h.donor.Wanted(step) {
		if err := h.donor.Snapshot(step, h.state.Save); err != nil {
			return err
		}
	}
	if r, ok := h.state.(Replayer); ok && h.updates == step && h.donor.Logging() {
		return h.donor.Update(step, r.Update)
	}
	return nil
}

// resting returns a channel that delivers a value when a newcomer wants a snapshot while this
// member waits for a view; nil if this member has no valid state.
func (h *heldState) resting() <-chan struct{} {
	if h.donor == nil || h.void {
		return nil
	}
	return h.donor.Asked()
}

// rest reports to the donor whether the state stays unchanged for a while.
func (h *heldState) rest(yes bool) {
	if h.donor != nil && !h.void {
		h.donor.Rest(yes)
	}
}

// beginAnew makes this peer's State the state of the job. It is called when no other member lives.
func (h *heldState) beginAnew() {
	h.void, h.fresh, h.synchronized = false, false, false
	if h.ids.run == 0 {
		h.ids.run = h.ids.job
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
	h.changes.again()
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
	sum, err := digestOf(h.state)
	h.digests = digests{took: time.Since(begun), at: time.Now()}
	return sum, err
}

// digestOf returns a fingerprint (xxHash64) of a state, never 0.
func digestOf(s State) (uint64, error) {
	hash := xxhash.New()
	if err := hashState(hash, s); err != nil {
		return 0, fmt.Errorf("save the state after step %d: %w", s.Step(), err)
	}
	return max(hash.Sum64(), 1), nil
}

// changes observes whether a loop of Steps changes the state. A loop that replaces a slice which
// Vectors has got by value, as in w = next, commits to other memory than the state's. All members
// then hold the same old values, which only a peer that copies them would use. The evidence is a
// state that has not changed though steps were committed. A state that is constant, or a program
// that has converged, gives the same evidence: so such a program is told, and a copy is refused,
// but no member ends. In slices that were given by their addresses, and in other states, a copy is
// always right.
//
// The cost is one digest when the loop begins, and one after stillSteps steps. Until the state has
// changed, each level costs one more.
type changes struct {
	began uint64 // digest of the observed part before the first of the steps; 0 if it was not taken
	steps int64  // steps with calls that were committed since then
	seen  bool   // the state has changed: the loop commits to it
}

// stillSteps is the number of steps after which the log reports that a state has not changed.
const stillSteps = 10

// again forgets the observed steps, because the state was replaced by a copy or by another state.
func (c *changes) again() { c.began, c.steps = 0, 0 }

// begin observes the state from now on.
func (c *changes) begin(s State) (err error) {
	if !c.seen && c.began == 0 {
		part, _ := observed(s)
		c.began, err = digestOf(part)
	}
	return err
}

// count counts a step. It reports whether the log must tell that the state has not changed.
func (c *changes) count(s State) (tell bool, err error) {
	if c.steps++; c.steps != stillSteps {
		return false, nil
	}
	still, err := c.none(s)
	return still > 0, err
}

// none returns the number of steps that have left the state unchanged; 0 if it has changed.
func (c *changes) none(s State) (steps int64, err error) {
	if c.seen || c.steps == 0 {
		return 0, nil
	}
	part, _ := observed(s)
	sum, err := digestOf(part)
	if c.seen = err == nil && sum != c.began; c.seen || err != nil {
		return 0, err
	}
	return c.steps, nil
}

// observed returns the part of a state whose changes are observed: the slices that were given by
// value (then slices is true), or the whole state if there are none.
func observed(s State) (part State, slices bool) {
	inner := s
	if u, ok := s.(interface{ Unwrap() State }); ok { // as *checkpoint.State has
		inner = u.Unwrap()
	}
	if v, ok := inner.(*variables); ok {
		if given := v.byValue(); len(given.parts) > 0 {
			return given, true
		}
	}
	return s, false
}

// digests records the cost of the last digest of the state, to bound the fraction of the time that
// digests take.
type digests struct {
	took time.Duration // duration of the last digest
	at   time.Time     // when the last digest ended
}

// digestShare bounds the time that digests of the state take, to the fraction 1/digestShare of all
// time.
const digestShare = 100

// cheap reports whether another digest now keeps within the bound of digestShare.
func (d digests) cheap(now time.Time) bool { return now.Sub(d.at) >= digestShare*d.took }

// newDonor returns the donor side of this member's transfers of a state. The donor sends at most
// rate bytes a second; 0 means no limit.
func newDonor(s State, rate int) *transfer.Donor {
	_, replays := s.(Replayer)
	return transfer.NewDonor(max(s.Step(), 0), transfer.Config{Rate: int64(rate), Replays: replays})
}
