package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch/internal/sink"
	"github.com/elrun/elrun/launch/spec"
)

// In these tests a shell script is a peer: it says hello, and then sends the messages of the test.

// sayEvent returns a shell command that sends an event with these fields to the launcher.
func sayEvent(name, fields string) string {
	return fmt.Sprintf(`printf '{"event":{"time":"2026-01-02T03:04:05Z","event":"%s","epoch":1,"peer":"peer-%%s","index":0,%s}}\n' $ELRUN_INDEX >&3; `,
		name, fields)
}

// viewOfTwo returns a shell command that reports a view of peers 0 and 1.
func viewOfTwo() string {
	return sayEvent("view", `"members":["peer-0","peer-1"],"voters":[],"reason":"start"`)
}

func TestRunTellsOfDeath(t *testing.T) {
	res, out, err := runShell(t, sayHello+viewOfTwo()+`[ $ELRUN_INDEX = 1 ] && kill -9 $$; read -r dead <&3; echo "$dead"; `+
		sayDone+`abcd >&3`, spec.Options{Peers: 2})
	if res.Status != 0 || !strings.Contains(out, `[0] {"dead":"peer-1"}`) || !strings.Contains(out, "\ndone steps=9") {
		t.Errorf("result %+v, stdout %q", res, out)
	}
	if !strings.Contains(err, "the job finished, but before its end peer 1 (pid ") ||
		!strings.Contains(err, "peer 1 (peer-1) was killed by signal 9 (killed)") {
		t.Errorf("stderr %q", err)
	}
}

func TestRunGivesUp(t *testing.T) {
	for name, script := range map[string]string{
		"by status": `exit 75`,
		"by event":  sayEvent("quorum", `"state":"gave-up","present":1,"needed":2`) + `exit 1`,
	} {
		res, _, err := runShell(t, sayHello+viewOfTwo()+script, spec.Options{Peers: 2, Membership: spec.Membership{Restart: 5}})
		if res.Status != spec.StatusQuorum || strings.Contains(name, "event") && !strings.Contains(err, "gives up with status 75") {
			t.Errorf("%s: result %+v, stderr %q", name, res, err)
		}
	}
}

// A crashed peer is restarted under its index. The new process gets a start order and the death of
// its predecessor, and the event log has the restart.
func TestRunRestarts(t *testing.T) {
	var events sink.Buffer
	dir := t.TempDir()
	res, out, err := runShell(t, fmt.Sprintf(`cd %s; [ $ELRUN_INDEX = 1 ] && [ -e crashed ] && suffix=-again
		printf '{"hello":{"id":"peer-%%s%%s"}}\n' $ELRUN_INDEX $suffix >&3; read -r answer <&3
		[ $ELRUN_INDEX = 1 ] && [ ! -e crashed ] && { touch crashed; exit 3; }
		read -r dead <&3; echo "$answer and $dead"; [ $ELRUN_INDEX = 0 ] && while [ ! -e back ]; do :; done; touch back; exit 0`, dir),
		spec.Options{Peers: 2, Membership: spec.Membership{Restart: 1}, Output: spec.Output{Events: &events}})
	if len(res.Exits) != 3 || strings.Count(out, `{"dead":"peer-1"}`) != 2 || !strings.Contains(out, `"contacts":[{"id":"peer-0"`) {
		t.Errorf("result %+v, stdout %q", res, out)
	}
	if !strings.Contains(err, "peer 1 is started again, as a new member (restart 1 of 1)") {
		t.Errorf("stderr %q", err)
	}
	if n := strings.Count(events.String(), `"event":"restart"`); n != 1 || !strings.Contains(events.String(), `"index":1,"ms":`) {
		t.Errorf("events %q", events.String())
	}
}

func TestRunRestartsUsedUp(t *testing.T) {
	_, _, err := runShell(t, sayHello+`[ $ELRUN_INDEX = 1 ] && exit 3; read -r a <&3; read -r b <&3; exit 0`, spec.Options{Peers: 2, Membership: spec.Membership{Restart: 1}})
	if !strings.Contains(err, "all 1 restarts are used up") {
		t.Errorf("stderr %q", err)
	}
}

// If no member is left, the peer that is started again begins anew.
func TestRunRestartsTheLast(t *testing.T) {
	res, _, err := runShell(t, `cd `+t.TempDir()+`; printf '{"hello":{"id":"peer-%s"}}\n' $$ >&3; read -r answer <&3; [ -e crashed ] || { touch crashed; exit 3; }; `+sayComplete,
		spec.Options{Peers: 1, Membership: spec.Membership{Restart: 1}})
	if res.Status != 0 || !strings.Contains(err, "no member of the job is left; peer 0, which waited to join, begins anew") {
		t.Errorf("result %+v, stderr %q", res, err)
	}
}

// A peer asks for three peers, and then for one.
func TestRunScales(t *testing.T) {
	// The death of a peer that was asked to leave may be reported between two answers.
	res, out, err := runShell(t, sayHello+`scale() {
			printf '{"scale":{"seq":%s,"peers":%s}}\n' $1 $2 >&3
			r='"dead"'; while case $r in *'"dead"'*) true;; *) false;; esac; do read -r r <&3; done; echo "$r"
		}
		case $ELRUN_INDEX in
		0) scale 1 3; scale 2 1; scale 3 0; `+sayComplete+`true;;
		*) exec sleep 300;; esac`, spec.Options{Peers: 1})
	for _, want := range []string{`"text":"1 local peer becomes 3: starting peers 1, 2"`, `"text":"3 local peers become 1: asking peers 2, 1 to leave"`,
		`"error":"0 peers: want 1 to`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %q", want, out)
		}
	}
	if res.Status != 0 || len(res.Exits) != 3 || !strings.Contains(err, "scale: ") {
		t.Errorf("result %+v, stderr %q", res, err)
	}
	for _, e := range res.Exits {
		if e.Asked != (e.Index > 0) {
			t.Errorf("peer %d: asked %v", e.Index, e.Asked)
		}
	}
}

// A peer that has stopped itself is reported by the other peer, and killed.
func TestRunKillsStopped(t *testing.T) {
	res, out, err := runShell(t, "cd "+t.TempDir()+"; "+sayHello+viewOfTwo()+`
		[ $ELRUN_INDEX = 1 ] && { echo $$ > new; mv new pid; kill -STOP $$; exit; }
		until [ -e pid ] && grep -q ') T' /proc/$(cat pid)/stat; do :; done
		printf '{"suspect":"peer-0"}\n{"suspect":"nobody"}\n{"suspect":"peer-1"}\n' >&3; read -r dead <&3; echo "$dead"`, spec.Options{Peers: 2})
	if !strings.Contains(out, `{"dead":"peer-1"}`) || !strings.Contains(err, "peer 1 (peer-1) is stopped and holds up the others: killing it") {
		t.Errorf("result %+v, stdout %q, stderr %q", res, out, err)
	}
}
