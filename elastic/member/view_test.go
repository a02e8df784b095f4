package member

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func membersOf(ids ...ID) []Member {
	var all []Member
	for _, id := range ids {
		all = append(all, Member{ID: id})
	}
	return all
}

func firstOf(t *testing.T, ids ...ID) View {
	t.Helper()
	v, err := First(membersOf(ids...))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// I3, I11: the views that Apply returns.
func TestApply(t *testing.T) {
	v := firstOf(t, "a", "b", "c")
	for _, step := range []struct {
		change Change
		want   string
		reason Reason
	}{
		{Change{Join: membersOf("d", "e")}, "epoch 2: a b c | d e", ForJoin},
		{Change{Lost: []ID{"b"}, Join: membersOf("f")}, "epoch 3: a c d e | f", ForLost},
		{Change{Left: []ID{"a"}}, "epoch 4: c d e f", ForLeave},
		{Change{Join: membersOf("g")}, "epoch 5: c d e f | g", ForJoin},
		{Change{}, "epoch 6: c d e f g", ForVote},
		{Change{Renew: true}, "epoch 7: c d e f g", ForRenew},
		{Change{Lost: []ID{"c", "d", "g"}, Forced: true}, "epoch 9: e f", ForForced},
		{Change{Left: []ID{"e"}}, "epoch 10: f", ForLeave},
	} {
		next, err := v.Apply(step.change)
		if err != nil || next.String() != step.want || next.Reason != step.reason || next.Parent != v.Hash() {
			t.Fatalf("%v after %v: got %v (%v), %v", step.change, v, next, next.Reason, err)
		}
		v = next
	}
	if v.Founder != "e" {
		t.Errorf("founder %q, want the lowest ID of the forced view", v.Founder)
	}
}

// A view has the members that left, and not the lost ones, until the next view.
func TestLeftOfView(t *testing.T) {
	v, err := First(membersOf("a", "b", "c", "d"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err = v.Apply(Change{Lost: []ID{"a"}, Left: []ID{"c"}}); err != nil || !slices.Equal(v.Left, []ID{"c"}) {
		t.Errorf("left: %v, %v", v.Left, err)
	}
	if v, err = v.Apply(Change{Lost: []ID{"d"}}); err != nil || len(v.Left) != 0 {
		t.Errorf("left in the next view: %v, %v", v.Left, err)
	}
}

// Apply refuses changes that do not fit the view.
func TestApplyRefuses(t *testing.T) {
	v := firstOf(t, "a", "b")
	long := make([]byte, MaxID+1)
	for name, c := range map[string]Change{
		"nothing":          {},
		"a stranger":       {Lost: []ID{"x"}},
		"twice":            {Lost: []ID{"a"}, Left: []ID{"a"}},
		"nobody left":      {Lost: []ID{"a", "b"}},
		"nobody to vote":   {Lost: []ID{"a", "b"}, Join: membersOf("c")},
		"a member joins":   {Join: membersOf("b")},
		"joins twice":      {Join: membersOf("c", "c")},
		"no ID":            {Join: membersOf("")},
		"long ID":          {Join: membersOf(ID(long))},
		"too many members": {Join: make([]Member, MaxMembers)},
	} {
		if next, err := v.Apply(c); !errors.Is(err, ErrChange) {
			t.Errorf("%s: got %v, %v", name, next, err)
		}
	}
	if _, err := First(membersOf("a", "b", "a")); !errors.Is(err, ErrChange) {
		t.Errorf("first view with a twice: %v", err)
	}
	if _, err := First(nil); !errors.Is(err, ErrChange) {
		t.Errorf("empty first view: %v", err)
	}
	if _, err := New(Config{Self: Member{ID: "x"}}, membersOf("a")); !errors.Is(err, ErrChange) {
		t.Errorf("a machine outside its view: %v", err)
	}
}

// After more changes than a log holds, the changes after any view in the log lead to the present
// view.
func TestHistory(t *testing.T) {
	v := firstOf(t, "m")
	h := history{base: v}
	var views []View
	for i := range 3 * logDepth {
		c := Change{Join: membersOf(ID(fmt.Sprintf("j%d", i)))}
		if i > 2 {
			c.Lost = []ID{ID(fmt.Sprintf("j%d", i-3))}
		}
		next, err := v.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, next)
		h.push(Decision{Change: c}, next)
		v = next
	}
	known := 0
	for i, old := range views {
		at := h.index(old.Hash())
		if at < 0 {
			continue
		}
		known++
		receiver := history{base: old}
		b := receiver.meet(Message{After: old.Hash(), Changes: h.decisions(at)})
		if !b.known || b.fork || len(b.rest) != len(views)-1-i {
			t.Fatalf("from %v: %+v", old, b)
		}
		base := h.base
		b = receiver.meet(Message{Base: &base, Changes: h.decisions(0)})
		if !b.known || b.fork || len(b.rest) != len(views)-1-i {
			t.Fatalf("whole, from %v: %+v", old, b)
		}
	}
	if known < logDepth/2 {
		t.Errorf("only %d views are known", known)
	}
	// I2: IDs of members in the log are not fresh, and requests from before the log are refused.
	last := ID(fmt.Sprintf("j%d", 3*logDepth-5))
	for _, r := range []Request{{Member{ID: last}, v.Epoch - 9}, {Member{ID: "new"}, h.base.Epoch - 1}, {Member{ID: "m"}, v.Epoch}} {
		if h.fresh(v, r) {
			t.Errorf("%+v is fresh", r)
		}
	}
	if !h.fresh(v, Request{Member{ID: "new"}, v.Epoch}) {
		t.Error("a new peer is not fresh")
	}
}

// Of two different keys one beats the other, and the keys of branches with a forced view are
// totally ordered.
func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Custom(func(t *rapid.T) Key {
			return Key{rapid.Uint64Range(0, 2).Draw(t, "stable"), ID(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "founder")),
				rapid.Uint64Range(1, 2).Draw(t, "epoch"), ID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"))}
		})
		a, b, c := key.Draw(t, "a"), key.Draw(t, "b"), key.Draw(t, "c")
		if a != b && a.Beats(b) == b.Beats(a) || a == b && a.Beats(b) {
			t.Fatalf("%v and %v", a, b)
		}
		if a.Beats(b) && b.Beats(c) && !a.Beats(c) {
			t.Fatalf("%v, %v, %v", a, b, c)
		}
	})
}
