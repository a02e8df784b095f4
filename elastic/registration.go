package elastic

import (
	"sync"

	"github.com/elrun/elrun/elastic/internal/transfer"
)

// terms are what a program has registered with its group, and what the group compares with the
// offers of newcomers.
type terms struct {
	state    State // held in common by all members; nil for none
	settings []Setting
	donor    *transfer.Donor // sends state to newcomers; nil without a state
	first    int64           // last step of the first call of Steps; 0 for none
	begun    bool            // Next was called: state and settings are final
}

// registration holds the terms. The goroutine that calls Next writes them under the lock, and reads
// them without it. Other goroutines, which answer requests, call registered.
type registration struct {
	mu sync.Mutex
	terms
}

// register changes the terms.
func (r *registration) register(change func(*terms)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.terms)
}

// registered returns the present terms.
func (r *registration) registered() terms {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms
}
