//go:build !linux

package proc

import "time"

// withTimerSlack calls start. Only Linux has a timer slack that can be set.
func withTimerSlack(_ time.Duration, start func() error) error { return start() }
