package launch

import "testing"

// A peer that has ended in good order, or because its group gave up, is not started again.
func TestRunRestartsNoneThatEnded(t *testing.T) {
	for _, how := range []string{"exit 0", "exit 75"} {
		res, _, err := runShell(t, sayHello+`[ $ELRUN_INDEX = 1 ] && `+how+`; read -r dead <&3; exit 0`, Options{Peers: 2, Restart: 3})
		if len(res.Exits) != 2 {
			t.Errorf("%s: result %+v, stderr %q", how, res, err)
		}
	}
}
