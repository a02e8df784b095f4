//go:build !linux

package shm

import "runtime"

func yield() { runtime.Gosched() }

func coreHere() (core uint32, ok bool) { return 0, false }

func leaveCore(uint32) {}
