package run

import (
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/say"
	"github.com/elrun/elrun/launch/spec"
)

// A peer that has ended with status 0, or because its group gave up, is not restarted.
func TestRunRestartsNoneThatEnded(t *testing.T) {
	for _, how := range []string{"exit 0", "exit 75"} {
		res, _, err := runShell(t, sayHello+`[ $ELRUN_INDEX = 1 ] && `+how+`; read -r dead <&3; exit 0`, spec.Options{Peers: 2, Membership: spec.Membership{Restart: 3}})
		if len(res.Exits) != 2 {
			t.Errorf("%s: result %+v, stderr %q", how, res, err)
		}
	}
}

// A peer that leaves as asked, or that came after the job had finished, is neither a failure nor started again, whatever its
// status is. A request to leave that comes after the result changes nothing.
func TestRunLeavers(t *testing.T) {
	leaves := `printf '{"leaving":true}\n' >&3; `
	left := `printf '{"event":{"event":"leave","peer":"peer-%s","step":7,"who":"peer-%s","reason":"asked"}}\n' $ELRUN_INDEX $ELRUN_INDEX >&3; `
	closed := strings.Replace(left, "asked", "closed", 1)
	first, second := `[ $ELRUN_INDEX = 0 ] || `, `[ $ELRUN_INDEX = 1 ] || `
	const stopped = "elrun: the job was stopped at step 7: it has no result\n"
	for name, c := range map[string]struct {
		script string
		status int
		says   string
		crash  bool // the peers may be started again
	}{
		"SIGTERM to all":                   {leaves + left + `exit 1`, 0, stopped, false},
		"all by themselves":                {left + `exit 1`, 0, stopped, false},
		"killed on the way":                {leaves + `kill -9 $$`, 0, "elrun: the job was stopped: it has no result\n", false},
		"closed without a result":          {closed + `exit 1`, 1, "the job did not finish", true},
		"a peer leaves, the other goes on": {second + `{ ` + leaves + left + `exit 1; }; read -r dead <&3; ` + sayComplete, 0, "", false},
		"a peer fails after the result":    {first + `{ read -r dead <&3; exit 0; }; ` + sayDone + `abcd >&3; ` + leaves + `exit 1`, 1, "it had a result, but then peer 0", true},
	} {
		t.Run(name, func(t *testing.T) {
			res, _, err := runShell(t, sayHello+viewOfTwo()+c.script, spec.Options{Peers: 2, Membership: spec.Membership{Restart: 3}})
			if res.Status != c.status || !c.crash && len(res.Exits) != 2 || !strings.Contains(err, c.says) {
				t.Errorf("status %d, want %d; %d exits, stderr %q", res.Status, c.status, len(res.Exits), err)
			}
		})
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
		if got := say.FormatSites(members); got != want {
			t.Errorf("%q: %q, want %q", sites, got, want)
		}
	}
	if got := say.FormatSites([]elastic.Member{{Site: "a"}, {Site: "b"}}); got != "" {
		t.Errorf("all name theirs: %q", got)
	}
}
