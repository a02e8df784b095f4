package member

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// After any sequence of changes no grant has admitted more peers than its uses, revoked grants
// admit nobody, kicked peers are in no view, and the grants of a kicked peer are revoked.
func TestGrantsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, err := First(membersOf("a", "b"), Grant{Key: "root"})
		if err != nil {
			t.Fatal(err)
		}
		let := make(map[ID]uint64)
		for i := range rapid.IntRange(1, 30).Draw(t, "changes") {
			id := ID(fmt.Sprint("p", i))
			key := rapid.SampledFrom([]ID{"root", "k0", "k1", "k2", "unknown"}).Draw(t, "key")
			who := rapid.SampledFrom(v.IDs()).Draw(t, "who")
			c := rapid.SampledFrom([]Change{
				{Join: []Member{{ID: id, By: key}}}, {Join: []Member{{ID: id, By: key}, {ID: id + "x", By: key}}},
				{Revoke: []ID{key}}, {Kick: []ID{who}}, {Left: []ID{who}},
				{Grants: []Grant{{Key: key, Issuer: who, Made: int64(i), Expiry: int64(i + 5), Uses: 1}}, Join: []Member{{ID: id, By: key}}},
				{Kick: []ID{"gone"}, Join: []Member{{ID: "gone", By: key}}},
			}).Draw(t, "change")
			before := v
			next, err := v.Apply(c)
			if err != nil {
				continue
			}
			v = next
			for _, m := range c.Join {
				let[m.By]++
			}
			for _, g := range c.Grants {
				let[g.Key] = min(let[g.Key], uint64(len(c.Join))) // an earlier grant with the same key had expired
			}
			checkLedger(t, before, v, c, let)
		}
	})
}

// checkLedger compares a view with the view before, and with the number of peers admitted by each
// grant.
func checkLedger(t *rapid.T, before, v View, c Change, let map[ID]uint64) {
	for _, g := range v.Grants {
		if g.Uses != 0 && g.Used > g.Uses || g.Used != let[g.Key] {
			t.Fatalf("%+v has let in %d", g, let[g.Key])
		}
		old, ok := before.Grant(g.Key)
		if ok && old.Made == g.Made && old.Revoked && (!g.Revoked || g.Used != old.Used) {
			t.Fatalf("%+v after %+v", g, old)
		}
		if slices.Contains(c.Kick, g.Issuer) && !g.Revoked {
			t.Fatalf("%+v of a kicked peer", g)
		}
	}
	for _, m := range v.Members {
		if slices.Contains(v.Barred, m.ID) {
			t.Fatalf("%s was kicked, and is in %v", m.ID, v)
		}
	}
}

// Apply refuses changes that the grants of the view do not allow.
func TestGrantsRefuse(t *testing.T) {
	full := make([]Grant, MaxGrants)
	for i := range full {
		full[i] = Grant{Key: ID(fmt.Sprint("f", i))}
	}
	grants := []Grant{{Key: "root"}, {Key: "one", Issuer: "a", Uses: 1}, {Key: "void", Issuer: "a"}}
	for name, test := range map[string]struct {
		grants []Grant
		change Change
	}{
		"two by a grant for one":   {grants, Change{Join: []Member{{ID: "x", By: "one"}, {ID: "y", By: "one"}}}},
		"by no grant":              {grants, Change{Join: []Member{{ID: "x", By: "none"}}}},
		"by one revoked with it":   {grants, Change{Revoke: []ID{"void"}, Join: []Member{{ID: "x", By: "void"}}}},
		"of a peer kicked with it": {grants, Change{Kick: []ID{"a"}, Join: []Member{{ID: "x", By: "one"}}}},
		"kicked and joins":         {grants, Change{Kick: []ID{"x"}, Join: []Member{{ID: "x", By: "root"}}}},
		"the kicked comes back":    {grants, Change{Kick: []ID{"w"}, Join: []Member{{ID: "x", By: "one", Was: "w"}}}},
		"kicked twice":             {grants, Change{Kick: []ID{"a", "a"}}},
		"kicked and lost":          {grants, Change{Kick: []ID{"a"}, Lost: []ID{"a"}}},
		"revokes what is not":      {grants, Change{Revoke: []ID{"none"}}},
		"a second of one key":      {grants, Change{Grants: []Grant{{Key: "one"}}}},
		"no key":                   {grants, Change{Grants: []Grant{{}}}},
		"used already":             {grants, Change{Grants: []Grant{{Key: "new", Used: 1}}}},
		"one too many":             {full, Change{Grants: []Grant{{Key: "new"}}}},
	} {
		v, err := First(membersOf("a", "b"), test.grants...)
		if err != nil {
			t.Fatal(err)
		}
		if next, err := v.Apply(test.change); !errors.Is(err, ErrChange) && name != "kicked and lost" {
			t.Errorf("%s: %v, %v", name, next.Grants, err)
		}
	}
}

// A peer that comes back under another ID does not use its grant a second time. Grants that have
// expired make room for a new grant.
func TestGrantsMakeRoom(t *testing.T) {
	v, err := First(membersOf("a"), Grant{Key: "old", Issuer: "a", Expiry: 5, Uses: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []Change{
		{Join: []Member{{ID: "x", By: "old"}}}, {Lost: []ID{"x"}}, {Join: []Member{{ID: "y", By: "old", Was: "x"}}},
		{Grants: []Grant{{Key: "new", Issuer: "a", Made: 6, Expiry: 9}}},
	} {
		if v, err = v.Apply(c); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	if len(v.Grants) != 1 || v.Grants[0].Key != "new" || v.Rank("y") < 0 {
		t.Errorf("%v with %v", v, v.Grants)
	}
	if v, err = v.Apply(Change{Kick: []ID{"a"}}); err != nil || v.Grants[0].Left() || v.Reason != ForKick {
		t.Errorf("%v with %v, %v", v, v.Grants, err)
	}
}

// Two members that kick each other do not leave the group empty.
func TestKicksLeaveOne(t *testing.T) {
	v := firstOf(t, "a", "b")
	f := facts{view: v, here: []bool{true, true}, dead: make([]bool, 2), leaving: make([]bool, 2)}
	f.wishes.kick.add("a")
	f.wishes.kick.add("b")
	c, _ := f.dueChange()
	if after, err := v.Apply(c); err != nil || len(after.Members) != 1 || len(c.Kick) != 1 {
		t.Errorf("%v leads to %v, %v", c, after, err)
	}
}

// A member does not wait for a newcomer whose grant was used up or revoked before the newcomer was
// admitted. Otherwise the last member that leaves would wait for ever.
func TestLeavesWithoutTheRefused(t *testing.T) {
	for name, end := range map[string]Change{
		"used up": {Join: []Member{{ID: "p", By: "k"}}},
		"revoked": {Revoke: []ID{"k"}},
	} {
		m, err := New(Config{Self: Member{ID: "a"}, Grants: []Grant{{Key: "k", Uses: 1}}}, membersOf("a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []ID{"p", "q"} {
			m.Step(Admit{Request{Member{ID: id, By: "k"}, 1}})
		}
		if len(m.local.joins) != 2 {
			t.Fatalf("%s: admitted %v", name, m.local.joins)
		}
		v, err := m.view.Apply(end)
		if err != nil {
			t.Fatal(err)
		}
		m.local.enter(v, &m.history)
		for _, r := range m.local.joins {
			if r.Member.ID == "q" || name == "revoked" {
				t.Errorf("%s: %s is waited for", name, r.Member.ID)
			}
		}
		m.view = v
		m.local.admit(Request{Member{ID: "r", By: "k"}, 1})
		if slices.ContainsFunc(m.local.joins, func(r Request) bool { return r.Member.ID == "r" }) {
			t.Errorf("%s: r is waited for", name)
		}
	}
}
