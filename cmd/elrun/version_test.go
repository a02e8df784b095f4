package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionLine(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}
	rest := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	for want, info := range map[string]*debug.BuildInfo{
		"elrun devel":  nil,
		"elrun v1.2.3": {Main: debug.Module{Version: "v1.2.3"}, Settings: vcs},
		"elrun revision 0123456789ab with changes": {Main: debug.Module{Version: "(devel)"}, Settings: vcs},
		"elrun revision 0123456789ab":              {Settings: vcs[:1]},
	} {
		if got := versionLine(info); got != want+rest {
			t.Errorf("got %q, want %q", got, want+rest)
		}
	}
}

func TestVersion(t *testing.T) {
	stdout, stderr, status := command(t, "version")
	if status != 0 || stderr != "" || !strings.HasPrefix(stdout, "elrun ") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}
