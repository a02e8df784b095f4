package wire

import (
	"crypto/ed25519"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/p2p"
)

// Only the launcher of a member can sign its obituary.
func TestSignDeaths(t *testing.T) {
	_, ours, _ := ed25519.GenerateKey(nil)
	_, theirs, _ := ed25519.GenerateKey(nil)
	m := elastic.Member{ID: "a", Launcher: LauncherName(ours)}
	for name, c := range map[string]struct {
		m    elastic.Member
		o    p2p.Obituary
		want bool
	}{
		"its launcher":     {m, SignDeaths(ours, []elastic.ID{"a"})[0], true},
		"another launcher": {m, SignDeaths(theirs, []elastic.ID{"a"})[0], false},
		"another peer":     {m, p2p.Obituary{ID: "a", Signature: SignDeaths(ours, []elastic.ID{"b"})[0].Signature}, false},
		"no key":           {elastic.Member{ID: "a", Launcher: "text"}, SignDeaths(ours, []elastic.ID{"a"})[0], false},
	} {
		if got := IsDeath(c.m, c.o); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
