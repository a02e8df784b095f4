//go:build !linux

package launch

import "github.com/elrun/elrun/elastic"

// stopped is known on Linux only.
func stopped(int) bool { return false }

// processName is known on Linux only.
func processName() string { return "" }

// inspect knows something on Linux only.
func inspect(elastic.Member) elastic.ProcessState { return elastic.ProcessUnknown }
