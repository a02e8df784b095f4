package launch

import (
	"os/exec"
	"sync"
)

// orphanage tells the children of this process from orphans that the kernel gave to it, as it
// does if this is the first process of a container. Nobody else waits for those, and each
// would stay as a zombie. A nil orphanage does nothing.
type orphanage struct {
	mu  sync.Mutex
	own map[int]bool // children that have not been waited for
}

// start starts a command as a child. No process is taken for an orphan meanwhile.
func (o *orphanage) start(cmd *exec.Cmd) error {
	if o == nil {
		return cmd.Start()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		o.own[cmd.Process.Pid] = true
	}
	return err
}

// ended notes that a child has been waited for.
func (o *orphanage) ended(pid int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.own, pid)
}
