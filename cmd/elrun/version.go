package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/elrun/elrun/launch/spec"
)

// release is the version of elrun.
const release = spec.Version

// versionCommand is the command elrun version.
type versionCommand struct{}

// Run prints the version as one line.
func (v *versionCommand) Run(t *terminal) error {
	_, err := fmt.Fprintln(t.stdout, thisVersion())
	return err
}

// thisVersion returns the version of this elrun as one line.
func thisVersion() string {
	info, _ := debug.ReadBuildInfo()
	return versionLine(info)
}

// versionLine returns the version of elrun, of Go and of the system. After the version of elrun
// comes the source of the build in brackets, if it is known. info may be nil.
func versionLine(info *debug.BuildInfo) string {
	version := release
	if source := buildSource(info); source != "" {
		version += " (" + source + ")"
	}
	return fmt.Sprintf("elrun %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildSource returns the revision that a program was built from, or else the version of its
// module; "" if neither is known, or if the version is the release.
func buildSource(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	var revision, changed string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))] // 12 digits identify a commit
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	if revision != "" {
		return "revision " + revision + changed
	}
	// A build in a working copy has the version "(devel)", which says nothing about its source.
	if version := info.Main.Version; version != "(devel)" && version != "v"+release {
		return version
	}
	return ""
}
