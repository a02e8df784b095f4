package spec

import (
	"fmt"
	"path/filepath"
	"strings"
)

const (
	MaxPeers   = 4096 // processes of one launcher
	MaxSite    = 32   // bytes of the name of a site
	MaxJobName = 40   // bytes; the name is part of a socket address of at most 104 bytes
)

// ValidJob returns an error for a name that is not valid as a part of a socket address, a file
// name and a shell word.
func ValidJob(name string) error {
	if name == "" || len(name) > MaxJobName {
		return fmt.Errorf("job name %q: want 1 to %d characters", name, MaxJobName)
	}
	for i, r := range name {
		if !NameRune(r) || i == 0 && (r == '-' || r == '.') {
			return fmt.Errorf("job name %q: want letters, digits, '.', '_' and '-', beginning with neither '-' nor '.'", name)
		}
	}
	return nil
}

// ValidSite returns an error for an invalid or too long name of a site. The name "" is valid: no
// site.
func ValidSite(name string) error {
	if len(name) > MaxSite || strings.ContainsFunc(name, func(r rune) bool { return !NameRune(r) }) {
		return fmt.Errorf("site %q: want up to %d letters, digits, '.', '_' and '-'", name[:min(len(name), MaxSite)], MaxSite)
	}
	return nil
}

// NameRune reports whether r is allowed in the name of a job or a site.
func NameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

// JobName returns the name of a job: the base name of the program and a suffix, which
// distinguishes jobs of the same program.
func JobName(program, suffix string) string {
	base := strings.Map(func(r rune) rune {
		if NameRune(r) {
			return r
		}
		return '_'
	}, filepath.Base(program))
	base = strings.TrimLeft(base, "-.")
	if base == "" {
		base = "job"
	}
	return base[:min(len(base), MaxJobName-1-len(suffix))] + "-" + suffix
}

const MaxNodes = 256 // services and tasks of a program

const MaxMembers = 2 * MaxPeers // members of a group, which may have several launchers
