package member

import (
	"fmt"
	"slices"
)

// The limits of the grants of a view.
const (
	MaxGrants = 128 // grants of a view
	MaxBarred = 256 // kicked IDs of a view
	MaxRecord = 512 // bytes of a grant's Record
	MaxKey    = 64  // bytes of a grant's key, and of Member.By and Member.Was
)

// Grant admits peers that hold its key. The caller verifies that a peer holds the key. The number
// of uses is enforced here: Apply refuses a change that admits one peer too many.
type Grant struct {
	Key     ID     // public key that signs for a newcomer
	Issuer  ID     // the member that issued it; "" for a grant of the first view, which kicks do not revoke
	Made    int64  // Unix seconds
	Expiry  int64  // Unix seconds, for the caller to compare with its clock; 0 for no expiry
	Uses    uint64 // number of peers that it admits; 0 for any number
	Used    uint64 // number of peers that it has admitted
	Revoked bool
	Record  string // carried for the caller; never read here
}

// Left reports whether the grant admits another peer.
func (g Grant) Left() bool { return !g.Revoked && (g.Uses == 0 || g.Used < g.Uses) }

// Grant returns the grant of a key; ok is false if the view has none.
func (v View) Grant(key ID) (g Grant, ok bool) {
	i := grantIndex(v.Grants, key)
	if i < 0 {
		return Grant{}, false
	}
	return v.Grants[i], true
}

// letsIn reports whether the view admits a peer: by a grant with a use left, or because the peer
// needs no use of a grant.
func (v View) letsIn(m Member) bool {
	if m.By == "" || m.Was != "" {
		return true
	}
	g, ok := v.Grant(m.By)
	return ok && g.Left()
}

// grantIndex returns the index of the grant of a key, or -1.
func grantIndex(grants []Grant, key ID) int {
	return slices.IndexFunc(grants, func(g Grant) bool { return g.Key == key })
}

// applyGrants returns the grants and the barred IDs of v after c. The order matters: a grant that c
// revokes admits no peer of c, an ID that c kicks is not admitted by c, and a grant that c issues
// may admit a peer of c. All members apply the same rules to the same change, so all have the same
// exact count of uses.
func (v View) applyGrants(c Change) (grants []Grant, barred []ID, err error) {
	// The usual change of a view touches no grant, and shares both slices with v.
	if len(c.Kick)+len(c.Grants)+len(c.Revoke)+len(c.Join) == 0 {
		return v.Grants, v.Barred, nil
	}
	grants, barred = slices.Clone(v.Grants), slices.Clone(v.Barred)
	for _, key := range c.Revoke {
		i := grantIndex(grants, key)
		if i < 0 || grants[i].Revoked {
			return nil, nil, fmt.Errorf("member: apply to %v: the change revokes grant %s, which is unknown or revoked already: %w", v, key, ErrChange)
		}
		grants[i].Revoked = true
	}
	for _, id := range c.Kick {
		if id == "" || len(id) > MaxID || slices.Contains(barred, id) || len(barred) == MaxBarred {
			return nil, nil, fmt.Errorf("member: apply to %v: the change kicks %q, whose ID is invalid or barred already, or the list of barred IDs is full (%d of %d): %w",
				v, id, len(barred), MaxBarred, ErrChange)
		}
		barred = append(barred, id)
		v.disown(grants, id)
	}
	for _, g := range c.Grants {
		if grants, err = addGrant(grants, g); err != nil {
			return nil, nil, fmt.Errorf("member: apply to %v: %w", v, err)
		}
	}
	for _, m := range c.Join {
		if slices.Contains(barred, m.ID) || m.Was != "" && slices.Contains(barred, m.Was) {
			return nil, nil, fmt.Errorf("member: apply to %v: %s was kicked: %w", v, m.ID, ErrChange)
		}
		if !(View{Grants: grants}).letsIn(m) {
			return nil, nil, fmt.Errorf("member: apply to %v: %s joins by grant %s, which is unknown, revoked or used up: %w", v, m.ID, m.By, ErrChange)
		}
		// A member that comes back under a new ID has used its grant before.
		if m.By != "" && m.Was == "" {
			grants[grantIndex(grants, m.By)].Used++
		}
	}
	return grants, barred, nil
}

// disown revokes the grants that a kicked peer has issued, and the grant by which the peer was
// admitted. A grant of the first view stays valid: its key belongs to the launcher that started the
// job, not to the peer.
func (v View) disown(grants []Grant, id ID) {
	by := ID("")
	if rank := v.Rank(id); rank >= 0 {
		by = v.Members[rank].By
	}
	for i, g := range grants {
		if g.Issuer != "" && (g.Issuer == id || g.Key == by) {
			grants[i].Revoked = true
		}
	}
}

// addGrant adds a grant, and removes the grants that had expired when the new grant was made.
func addGrant(grants []Grant, g Grant) ([]Grant, error) {
	grants = slices.DeleteFunc(grants, func(o Grant) bool { return o.Expiry != 0 && o.Expiry < g.Made })
	switch {
	case g.Key == "" || len(g.Key) > MaxKey || len(g.Issuer) > MaxID || len(g.Record) > MaxRecord || g.Used != 0 || g.Revoked:
		return nil, fmt.Errorf("grant of key %q with a record of %d bytes: its key is missing, a field is too long, or it is used or revoked already: %w", g.Key, len(g.Record), ErrChange)
	case grantIndex(grants, g.Key) >= 0:
		return nil, fmt.Errorf("the view has a grant of key %s already: %w", g.Key, ErrChange)
	// Revoked grants and grants without a use left count, too, until they have expired.
	case len(grants) >= MaxGrants:
		return nil, fmt.Errorf("%d grants, at most %d: %w", len(grants)+1, MaxGrants, ErrChange)
	}
	return append(grants, g), nil
}

// CanGrant returns why the view cannot take another grant, or nil.
func (v View) CanGrant(g Grant) error {
	_, err := addGrant(slices.Clone(v.Grants), g)
	return err
}

// wishes are a member's requests about grants.
type wishes struct {
	grants []Grant // to be issued
	revoke idSet   // keys of grants to be revoked
	kick   idSet   // IDs to be put out and barred
}

// settle drops the requests that v has fulfilled, and the requests that can no longer be fulfilled.
func (w *wishes) settle(v View) {
	w.grants = slices.DeleteFunc(w.grants, func(g Grant) bool { return grantIndex(v.Grants, g.Key) >= 0 || v.CanGrant(g) != nil })
	w.revoke = slices.DeleteFunc(w.revoke, func(key ID) bool {
		g, ok := v.Grant(key)
		return !ok || g.Revoked
	})
	w.kick = slices.DeleteFunc(w.kick, func(id ID) bool { return slices.Contains(v.Barred, id) })
}

// add adds the requests of a report.
func (w *wishes) add(r *Report) {
	for _, g := range r.Grants {
		if grantIndex(w.grants, g.Key) < 0 {
			w.grants = append(w.grants, g)
		}
	}
	for _, id := range r.Revoke {
		w.revoke.add(id)
	}
	for _, id := range r.Kick {
		w.kick.add(id)
	}
}
