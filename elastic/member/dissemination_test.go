package member

import "testing"

// A change is sent to each member until the member acknowledges it, at most announceTimes times.
// Nothing is sent to a member that is certainly dead: a later view will put it out.
func TestDisseminationEnds(t *testing.T) {
	m := machineOf(t, "a", Config{}, "a", "b", "c", "d")
	m.local.dead.add("d")
	v, d := decided(t, m.view, Change{Join: membersOf("new")}, "a", "b", "c")
	m.decided(d, v)
	m.dissemination.acknowledged("c")
	sent := make(map[ID]int)
	for range 10000 {
		for _, msg := range m.Ready().Messages {
			if msg.Kind == Chain {
				sent[msg.To]++
				if whole := msg.Base != nil; whole != (msg.To == "new") {
					t.Errorf("%s is sent a whole view: %v", msg.To, whole)
				}
			}
		}
		if m.tick++; m.Settled() {
			break
		}
		m.dissemination.repeat()
	}
	if !m.Settled() || sent["b"] != announceTimes || sent["new"] != announceTimes || sent["c"] != 1 || sent["d"] != 0 {
		t.Errorf("settled: %v; sent %v", m.Settled(), sent)
	}
}

// The key that a member compares with a rival's key stays the same while messages with it may be in
// flight. Later the key follows the number of stable steps.
func TestKeyIsFrozenForAWhile(t *testing.T) {
	c := &branchConflict{membership: aloneIn(t, "a", "a", "b")}
	first := c.frozenKey()
	c.stable = 5
	c.tick = freezeBeats*c.cfg.Beat - 1
	if got := c.frozenKey(); got != first {
		t.Errorf("%+v becomes %+v", first, got)
	}
	c.tick += freezeBeats * c.cfg.Beat
	if got := c.frozenKey(); got.Stable != 5 {
		t.Errorf("after a long time: %+v", got)
	}
}
