package inpeer

import (
	"testing"

	"github.com/elrun/elrun/launch/spec"
)

// The peers of a closed job are reachable only from this host.
func TestListenAddrsByWord(t *testing.T) {
	for _, word := range []string{spec.ListenAuto, spec.ListenLocal} {
		if got, err := listenAddrs(word); err != nil || len(got) == 0 || !spec.OnlyLoopback(got) {
			t.Errorf("%s: got %v, %v", word, got, err)
		}
	}
	if got, err := listenAddrs(spec.ListenAll); err != nil || len(got) == 0 || spec.OnlyLoopback(got) {
		t.Errorf("all: got %v, %v", got, err)
	}
	for listen, want := range map[string]string{"": "all", "auto": "all", "local": "local", "192.0.2.1": "192.0.2.1"} {
		if got := spec.OpenListen(listen); got != want {
			t.Errorf("open job, %q: got %s, want %s", listen, got, want)
		}
	}
}
