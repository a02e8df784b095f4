//go:build !linux

package launch

import "github.com/elrun/elrun/elastic"

// stopped returns false: the state is known on Linux only.
func stopped(int) bool { return false }

// processName returns "": the name is known on Linux only.
func processName() string { return "" }

// inspect returns ProcessUnknown: the state is known on Linux only.
func inspect(elastic.Member) elastic.ProcessState { return elastic.ProcessUnknown }
