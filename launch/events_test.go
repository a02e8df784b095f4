package launch

import (
	"testing"

	"github.com/elrun/elrun/elastic"
)

// A peer that has ended with status 0, or because its group gave up, is not restarted.
func TestRunRestartsNoneThatEnded(t *testing.T) {
	for _, how := range []string{"exit 0", "exit 75"} {
		res, _, err := runShell(t, sayHello+`[ $ELRUN_INDEX = 1 ] && `+how+`; read -r dead <&3; exit 0`, Options{Peers: 2, Membership: Membership{Restart: 3}})
		if len(res.Exits) != 2 {
			t.Errorf("%s: result %+v, stderr %q", how, res, err)
		}
	}
}

// If only some members have a site, a line says that sites are ignored.
func TestWordSites(t *testing.T) {
	for want, sites := range map[string][]string{
		"": {"", ""},
		"--site is ignored while 1 peer names no site: name one for all peers": {"a", "", "b"},
		"--site is ignored while 2 peers name no site: name one for all peers": {"", "", "b"},
	} {
		var members []elastic.Member
		for _, s := range sites {
			members = append(members, elastic.Member{Site: s})
		}
		if got := formatSites(members); got != want {
			t.Errorf("%q: %q, want %q", sites, got, want)
		}
	}
	if got := formatSites([]elastic.Member{{Site: "a"}, {Site: "b"}}); got != "" {
		t.Errorf("all name theirs: %q", got)
	}
}
