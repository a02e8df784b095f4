package proc

import (
	"os/exec"
	"sync"
)

// ChildReaper distinguishes the children of this process from orphans that the kernel has
// reparented to it, as it does for the first process of a container. Only this process can wait for
// orphans, which would otherwise stay as zombies. A nil ChildReaper does nothing. It is safe for
// concurrent use.
type ChildReaper struct {
	// mu guards own.
	mu  sync.Mutex
	own map[int]bool // children that have not been waited for
}

// Start starts a command as a child. It holds mu, so that reap does not take the new process for an
// orphan.
func (c *ChildReaper) Start(cmd *exec.Cmd) error {
	if c == nil {
		return cmd.Start()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		c.own[cmd.Process.Pid] = true
	}
	return err
}

// Ended records that a child has been waited for.
func (c *ChildReaper) Ended(pid int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.own, pid)
}
