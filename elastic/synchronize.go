package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// account is a member's report on its state, made when the member enters a session. Each member
// gathers the accounts of all members.
type account struct {
	holds   bool  // the member has a State
	step    int64 // last step that the State has committed; negative if the State is void
	updates int64 // first step whose update the member can give to others; above step if there is none
	fresh   bool  // the member has joined and was in no session yet
	// settings is the hash of the member's settings. digest is the fingerprint of the member's
	// State in its first session; it is 0 later, and if States are not compared.
	settings, digest uint64
	// For loops of Steps: the number of the call of Steps, from 1, or 0 for none; its last step;
	// and whether the loop has ended with the step of the State.
	loop    int
	until   int64
	stopped bool
	// ended means that the member knows that members have left because the job is at its end.
	ended bool
	// job and run are the IDs of the training; 0 if the member does not know them yet.
	job, run uint64
	// still is the number of steps that have left the slices of the State unchanged, though they
	// were given by value; 0 if they have changed, or if there are none.
	still int64
}

// accountWords is the number of int64 of an encoded account.
const accountWords = 13

// words returns the encoded account: one int64 per field.
func (a account) words() []int64 {
	number := map[bool]int64{true: 1}
	return []int64{number[a.holds], a.step, a.updates, number[a.fresh], int64(a.settings), int64(a.digest),
		int64(a.loop), a.until, number[a.stopped], number[a.ended], int64(a.job), int64(a.run), a.still}
}

// accountsOf is the inverse of words, for the accounts of all ranks.
func accountsOf(words []int64) []account {
	var all []account
	for w := range slices.Chunk(words, accountWords) {
		all = append(all, account{w[0] != 0, w[1], w[2], w[3] != 0, uint64(w[4]), uint64(w[5]), int(w[6]), w[7], w[8] != 0, w[9] != 0,
			uint64(w[10]), uint64(w[11]), w[12]})
	}
	return all
}

// copying is one transfer that brings the rank to level with the rank from. It carries the updates
// of the steps after the receiver's if updates is true, and otherwise the whole state.
type copying struct {
	from, to int
	updates  bool
}

// copies returns the transfers that bring all members level. The members that lag behind are
// distributed over the members that are ahead. If the members that are ahead hold different states,
// all members get the most common one of these states. copies is a pure function of the gathered
// accounts, so all members compute the same transfers. An error names members that can never be
// level.
func copies(all []account) ([]copying, error) {
	for rank, a := range all {
		if a.holds != all[0].holds {
			return nil, mistakef("rank 0 and rank %d: only one of them has registered a state: call Hold at all peers, or at none", rank)
		}
	}
	ahead := leaders(all)
	high := all[ahead[0]].step
	if high < 0 {
		return nil, fmt.Errorf("no member holds a valid state: start the job again, from a checkpoint if there is one")
	}
	var out []copying
	for rank, a := range all {
		switch {
		case a.step == high && a.differs(all[ahead[0]]):
			out = append(out, copying{from: ahead[0], to: rank})
		case a.step < high:
			from := ahead[len(out)%len(ahead)]
			out = append(out, copying{from, rank, a.step >= 0 && all[from].updates <= a.step+1})
		}
	}
	return out, nil
}

// leaders returns the ranks that may send the state that all members get: those with the latest
// step, and of these the ones that hold the most common state.
func leaders(all []account) []int {
	var ahead []int
	for rank, a := range all {
		if len(ahead) > 0 && a.step > all[ahead[0]].step {
			ahead = nil
		}
		if len(ahead) == 0 || a.step == all[ahead[0]].step {
			ahead = append(ahead, rank)
		}
	}
	return sameStates(all, ahead)
}

// sameStates returns the ranks, among the given ones, that hold the most common state. Of several
// equally common states it chooses the state of the lowest rank. A state without a digest equals
// any other.
func sameStates(all []account, ranks []int) []int {
	like := func(right int) []int {
		return slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool { return all[rank].differs(all[right]) })
	}
	best := like(ranks[0])
	for _, rank := range ranks[1:] {
		if all[rank].differs(all[best[0]]) && len(like(rank)) > len(best) {
			best = like(rank)
		}
	}
	return best
}

// differs reports whether the digests of two members show different states.
func (a account) differs(b account) bool {
	return a.digest != 0 && b.digest != 0 && a.digest != b.digest
}

// synchronize brings the members of a session to the same step. If a donor dies meanwhile, the session is
// revoked, and the members try again in the next session. A receiver changes its state only when it
// has received a step completely.
func (h *heldState) synchronize(ctx context.Context, s *Session, l *loops) error {
	var ids runIDs
	for round := 0; ; round++ {
		// States are compared only once. If Save does not write the same bytes for equal states,
		// further comparisons would never agree.
		mine, err := h.account(!h.synchronized && round == 0 && s.Comm.Size() > 1)
		if err != nil {
			return abort(s, err)
		}
		mine.loop, mine.until, mine.stopped = l.ordinal(), l.until(), l.stopped
		now, _ := s.driver.status.now()
		mine.ended = now.ended
		words := make([]int64, accountWords*s.Comm.Size())
		if err := collective.AllGather(ctx, s.Comm, words, mine.words()); err != nil {
			return err
		}
		all := accountsOf(words)
		if jobEnded(all) {
			return fmt.Errorf("%w: the job ended while this peer joined", ErrNoView)
		}
		if slices.ContainsFunc(all, func(a account) bool { return a.settings != all[0].settings }) {
			return h.compareSettings(ctx, s)
		}
		if err := l.compare(s, all); err != nil {
			return err
		}
		if still := outdated(all, s.Rank); still > 0 {
			s.driver.report.fail()
			s.group.leaveAtOnce() // the others go on without this peer
			return abort(s, fmt.Errorf("%w: the state has not changed in %d steps, so a copy may be outdated: if the loop replaces a slice (w = next), "+
				"use copy(w, next) or elastic.Vectors(&step, &w)", ErrRefused, still))
		}
		// In later rounds members report the state of a leader with an ID of their own.
		if round == 0 {
			ids = idsOf(all)
		}
		if !slices.ContainsFunc(all, func(a account) bool { return a.holds }) {
			h.ids, h.fresh = ids, false
			return nil
		}
		todo, err := copies(all)
		if err != nil {
			return abort(s, err)
		}
		h.synchronized = h.synchronized || len(todo) == 0 || round > 0 // all members have received the copies of the first round
		if len(todo) == 0 {
			h.release(s.View)
			h.ids, h.fresh = ids, false
			return nil
		}
		for _, c := range todo {
			if err := h.copy(ctx, s, c, all); err != nil {
				return err
			}
		}
	}
}

// idsOf returns the IDs that all members of a session have from now on: those of the member whose
// state all get, or of the first member that knows them. It is a pure function of the gathered
// accounts, so all members get the same IDs.
func idsOf(all []account) (r runIDs) {
	ranks := leaders(all)
	for rank := range all {
		ranks = append(ranks, rank)
	}
	for _, rank := range ranks {
		if r.job == 0 {
			r.job = all[rank].job
		}
		if r.run == 0 {
			r.run = all[rank].run
		}
	}
	return r
}

// outdated returns the number of steps that have left the state of the leaders unchanged, if the
// member with the given rank has copied that state or is about to copy it; otherwise 0. Then the
// copy may be outdated, see changes.
func outdated(all []account, rank int) (still int64) {
	ahead := leaders(all)
	if !all[rank].fresh && all[rank].step >= all[ahead[0]].step {
		return 0
	}
	for _, leader := range ahead {
		still = max(still, all[leader].still)
	}
	return still
}

// jobEnded reports whether all members of a session are newcomers, and one of them knows that the
// members before them left because the job is at its end.
func jobEnded(all []account) bool {
	return slices.ContainsFunc(all, func(a account) bool { return a.ended }) &&
		!slices.ContainsFunc(all, func(a account) bool { return !a.fresh })
}

// release frees the updates that were kept for members while they joined.
func (h *heldState) release(v View) {
	for _, m := range v.Members {
		h.donor.Release(string(m.ID))
	}
}

// copy carries out this member's part in a transfer, if it has one.
func (h *heldState) copy(ctx context.Context, s *Session, c copying, all []account) error {
	switch s.Rank {
	case c.from:
		return h.give(ctx, s, c, all[c.to].step)
	case c.to:
		r, err := h.take(ctx, s, c, all[c.from].step)
		if err != nil {
			return err
		}
		s.group.Sessions().Emit(s.View.Epoch, all[c.from].step, *r)
	}
	return nil
}

// give sends the state or the updates to the receiver of c. The argument has is the receiver's last
// step.
func (h *heldState) give(ctx context.Context, s *Session, c copying, has int64) error {
	var b bytes.Buffer
	if !c.updates {
		if err := h.state.Save(&b); err != nil {
			return abort(s, fmt.Errorf("save the state after step %d: %w", h.state.Step(), err))
		}
		return sendBlob(ctx, s, c.to, b.Bytes())
	}
	// If the donor has kept no updates, the receiver lacks only the last step: otherwise copies
	// would have chosen the whole state.
	updates := h.donor.Kept(has)
	if updates == nil {
		if err := h.state.(Replayer).Update(&b); err != nil {
			return abort(s, fmt.Errorf("save the update of step %d: %w", h.state.Step(), err))
		}
		updates = [][]byte{b.Bytes()}
	}
	for _, update := range updates {
		if err := sendBlob(ctx, s, c.to, update); err != nil {
			return err
		}
	}
	return nil
}

// take receives the state or the updates, up to the step with the number to, and returns the event
// for the log.
func (h *heldState) take(ctx context.Context, s *Session, c copying, to int64) (*event.Resync, error) {
	begun, from, moved := time.Now(), h.state.Step(), 0
	for {
		blob, err := recvBlob(ctx, s, c.from)
		if err != nil {
			return nil, err
		}
		moved += len(blob)
		if err := h.install(bytes.NewReader(blob), c.updates); err != nil {
			return nil, abort(s, err)
		}
		// A whole state is one blob. Of updates there is one blob for each step.
		if step := h.state.Step(); !c.updates || step >= to {
			break
		}
	}
	if step := h.state.Step(); step != to {
		return nil, abort(s, fmt.Errorf("the state of %s is of step %d, not %d", s.View.Members[c.from].ID.Short(), step, to))
	}
	r := &event.Resync{Void: from < 0, Who: s.View.Members[s.Rank].ID.Short(), Reason: fmt.Sprintf("was at step %d, others at %d", from, to),
		Bytes: int64(moved), MS: milliseconds(time.Since(begun))}
	if from == to {
		r.Began, r.Reason = true, "its state differed from the others' state"
	}
	return r, nil
}

// abort revokes the session because of an error of this member. The other members receive the
// error.
func abort(s *Session, err error) error {
	s.Comm.Revoke(err)
	return err
}

// Tags of the messages of a transfer within a session.
const (
	tagLength = iota
	tagBytes
)

// blobPiece bounds one message of a transfer, in bytes.
const blobPiece = 4 << 20

// sendBlob sends the length of b and then its bytes, in messages of at most blobPiece.
func sendBlob(ctx context.Context, s *Session, to int, b []byte) error {
	if err := collective.Send(ctx, s.Comm, to, tagLength, []int64{int64(len(b))}); err != nil {
		return err
	}
	for piece := range slices.Chunk(b, blobPiece) {
		if err := collective.Send(ctx, s.Comm, to, tagBytes, piece); err != nil {
			return err
		}
	}
	return nil
}

// recvBlob receives the bytes that sendBlob sent. The buffer grows with the received bytes, so a
// wrong length cannot make this member allocate memory.
func recvBlob(ctx context.Context, s *Session, from int) ([]byte, error) {
	n := []int64{0}
	if err := collective.Recv(ctx, s.Comm, from, tagLength, n); err != nil {
		return nil, err
	}
	if n[0] < 0 {
		return nil, abort(s, fmt.Errorf("%s announces a state of %d bytes, want 0 or more", s.View.Members[from].ID.Short(), n[0]))
	}
	var b []byte
	for left := n[0]; left > 0; left = n[0] - int64(len(b)) {
		size := int(min(left, blobPiece))
		b = slices.Grow(b, size)
		if err := collective.Recv(ctx, s.Comm, from, tagBytes, b[len(b):len(b)+size]); err != nil {
			return nil, err
		}
		b = b[:len(b)+size]
	}
	return b, nil
}

// compareSettings is called if the hashes of the members' settings differ. It gathers the settings
// of all members, and returns the difference as an ErrSettings. All members call it, and all that get
// the settings return the same difference.
func (h *heldState) compareSettings(ctx context.Context, s *Session) error {
	mine, err := json.Marshal(h.settings)
	if err == nil && len(mine) > maxSettings {
		err = fmt.Errorf("they have %d bytes, want at most %d", len(mine), maxSettings)
	}
	if err != nil {
		return abort(s, fmt.Errorf("tell the settings: %w", err))
	}
	texts, err := gatherBytes(ctx, s, mine)
	if err != nil {
		return err
	}
	all := make([][]Setting, len(texts))
	for rank, text := range texts {
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return abort(s, fmt.Errorf("settings of %s: %w", s.View.Members[rank].ID.Short(), err))
		}
	}
	why := disagreement(all, s.names())
	if why == "" {
		why = "their hashes are not equal"
	}
	return s.mismatch(why)
}

// maxSettings bounds the encoded settings of a peer, in bytes.
const maxSettings = 1 << 20

// gatherBytes gathers the byte strings of all members, by rank. Lengths differ, so all are padded
// to the longest.
func gatherBytes(ctx context.Context, s *Session, mine []byte) ([][]byte, error) {
	n := s.Comm.Size()
	lengths := make([]int64, n)
	if err := collective.AllGather(ctx, s.Comm, lengths, []int64{int64(len(mine))}); err != nil {
		return nil, err
	}
	// All ranks get the same lengths, so all make the same decision.
	most := slices.Max(lengths)
	if slices.Min(lengths) < 0 || most > maxSettings {
		return nil, abort(s, fmt.Errorf("members announce settings of %d to %d bytes, want 0 to %d", slices.Min(lengths), most, maxSettings))
	}
	padded, gathered := make([]byte, most), make([]byte, most*int64(n))
	copy(padded, mine)
	if err := collective.AllGather(ctx, s.Comm, gathered, padded); err != nil {
		return nil, err
	}
	out := make([][]byte, n)
	for rank := range out {
		begin := int64(rank) * most
		out[rank] = gathered[begin : begin+lengths[rank]]
	}
	return out, nil
}
