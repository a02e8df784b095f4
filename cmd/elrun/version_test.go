package main

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionLine(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}
	rest := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	for want, infos := range map[string][]*debug.BuildInfo{
		"":                                      {nil, {}, {Main: debug.Module{Version: "(devel)"}}, {Main: debug.Module{Version: "v" + release}}},
		" (v1.2.3-0.20010203-0123)":             {{Main: debug.Module{Version: "v1.2.3-0.20010203-0123"}}},
		" (revision 0123456789ab with changes)": {{Settings: vcs}, {Main: debug.Module{Version: "v1.2.3"}, Settings: vcs}},
		" (revision 0123456789ab)":              {{Settings: vcs[:1]}},
	} {
		for _, info := range infos {
			if got := versionLine(info); got != "elrun "+release+want+rest {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	stdout, stderr, status := command(t, "version")
	if status != 0 || stderr != "" || !strings.HasPrefix(stdout, "elrun "+release+" ") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// The files that contain the version of elrun have the version release.
func TestVersionInFiles(t *testing.T) {
	for file, pattern := range map[string]string{
		"CHANGELOG.md":             `(?m)^## (\d\S*)$`, // the first one, after what is not released
		"Containerfile":            `(?m)^LABEL org\.opencontainers\.image\.version=(\S+)$`,
		"python/elrun/__init__.py": `(?m)^__version__ = "(\S+)"$`,
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(pattern).FindSubmatch(text); found == nil || string(found[1]) != release {
			t.Errorf("%s has version %s, want %s", file, found, release)
		}
	}
}
