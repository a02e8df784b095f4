package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCommand is the command elrun version.
type versionCommand struct{}

// Run prints the version as one line.
func (c *versionCommand) Run(t *terminal) error {
	info, _ := debug.ReadBuildInfo()
	_, err := fmt.Fprintln(t.stdout, versionLine(info))
	return err
}

// versionLine returns the version of elrun, of Go and of the system. The version of elrun is the
// released version, else the revision, else "devel". info may be nil.
func versionLine(info *debug.BuildInfo) string {
	var version, revision, changed string
	if info != nil {
		version = info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = " with changes"
			}
		}
	}
	if version == "(devel)" {
		version = ""
	}
	if version == "" && revision != "" {
		version = "revision " + revision + changed
	}
	return fmt.Sprintf("elrun %s %s %s/%s", cmp.Or(version, "devel"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
