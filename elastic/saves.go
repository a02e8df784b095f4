package elastic

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elrun/elrun/elastic/wish"
)

// saveRetry is the pause before a member is asked again that has not taken a wish.
const saveRetry = 100 * time.Millisecond

// requestSave is a request of a member for a checkpoint. The wish follows, as 8 bytes. The answer is a wish.Saved, which is zero if the member
// does not write the checkpoints.
const requestSave requestKind = 's'

// save answers the wish of a member for a checkpoint.
func (r *requestServer) save(ctx context.Context, from ID, body []byte, w io.Writer) error {
	d := r.identity.current()
	now, _ := d.status.now()
	if len(body) != 8 || now.view.Rank(from) < 0 {
		return fmt.Errorf("elastic: wish of %d bytes for a checkpoint by %s, want 8 by a member", len(body), from.Short())
	}
	var out wish.Saved // zero unless this member takes the wish
	if now.phase == inside && now.view.Rank(d.ep.Self.ID) == 0 {
		out, _ = r.wishes.Make(ctx, int64(binary.LittleEndian.Uint64(body)), r.registration.registered().begun)
	}
	return json.NewEncoder(w).Encode(out)
}

// askSave makes a wish for a checkpoint at another member.
func askSave(ctx context.Context, n Network, to ID, since int64) (wish.Saved, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*wish.Wait)
	defer cancel()
	answer, err := n.Request(ctx, to, binary.LittleEndian.AppendUint64([]byte{byte(requestSave)}, uint64(since)))
	if err != nil {
		return wish.Saved{}, err
	}
	defer answer.Close()
	var out wish.Saved
	if err := json.NewDecoder(io.LimitReader(answer, maxReply)).Decode(&out); err != nil {
		return wish.Saved{}, err
	}
	if out.Since == 0 {
		return wish.Saved{}, wish.ErrElsewhere
	}
	return out, nil
}

// Save asks the member of rank 0, which writes the checkpoints, for one at its next boundary between two steps. It returns after
// about a second, also if the wish is not settled yet. The caller then calls it again, at this peer or another one, with
// Saved.Since of the answer; a new wish has 0. So the next member of rank 0 gets the wish if this one dies. An error means that no
// member has taken the wish: this peer is no member, or ctx has ended before one answered.
func (a Admin) Save(ctx context.Context, since int64) (wish.Saved, error) {
	if !a.g.made() {
		return wish.Saved{}, fmt.Errorf("elastic: save: %w", errNoGroup)
	}
	d := a.g.current()
	for {
		now, changed := d.status.now()
		if now.phase != inside {
			return wish.Saved{}, errors.New("elastic: save: this peer is no member")
		}
		by := now.view.Members[0]
		out, err := a.saveAt(ctx, d, now.view, since)
		if err == nil {
			out.By, out.Host = by.ID.Short(), by.Host
			return out, nil
		}
		pause := time.NewTimer(saveRetry)
		select {
		case <-changed:
		case <-pause.C:
		case <-ctx.Done():
			err = fmt.Errorf("elastic: save: %s of rank 0 has not taken the wish: %w", nameOf(by, d.ep.Self), err)
		}
		if pause.Stop(); ctx.Err() != nil {
			return wish.Saved{}, err
		}
	}
}

// saveAt makes a wish at the member of rank 0 of a view. It gives up when there is a later view.
func (a Admin) saveAt(ctx context.Context, d *driver, v View, since int64) (wish.Saved, error) {
	if v.Members[0].ID == d.ep.Self.ID {
		return a.g.wishes.Make(ctx, since, a.g.held.registered().begun)
	}
	ctx, cancel := d.status.while(ctx, func(s status) bool { return s.view.Epoch == v.Epoch && s.phase == inside })
	defer cancel()
	return askSave(ctx, d.ep.Network, v.Members[0].ID, since)
}
