//go:build !linux

package proc

import "github.com/elrun/elrun/elastic"

// Stopped returns false: the state is known on Linux only.
func Stopped(int) bool { return false }

// ProcessName returns "": the name is known on Linux only.
func ProcessName() string { return "" }

// Inspect returns ProcessUnknown: the state is known on Linux only.
func Inspect(elastic.Member) elastic.ProcessState { return elastic.ProcessUnknown }
