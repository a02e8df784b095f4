package inpeer

import (
	"context"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
)

// passPeriod is how long a peer waits for the launcher's signature of a new identity. Without an
// answer, as from a launcher that is stopped by SIGSTOP, the peer presents only the claim of its
// former identity.
const passPeriod = time.Second

// passes passes the launcher's signatures of new identities from the goroutine that reads the
// launcher's messages to the call of wait. It is a channel of capacity 1 with the latest pass.
type passes chan wire.Pass

// newPasses returns passes without a pass.
func newPasses() passes { return make(passes, 1) }

// put stores a pass for wait. It replaces an unread pass, which belongs to an earlier identity.
// Only one goroutine may call it.
func (p passes) put(got wire.Pass) {
	select {
	case <-p:
	default:
	}
	select {
	case p <- got:
	default:
	}
}

// wait waits for the signature of the identity self. It returns nil if the launcher is gone, or
// does not answer within passPeriod.
func (p passes) wait(ctx context.Context, self elastic.ID, gone <-chan struct{}) []byte {
	timer := time.NewTimer(passPeriod)
	defer timer.Stop()
	for {
		select {
		case got := <-p:
			// A pass for an earlier identity is dropped: it does not prove the present one.
			if got.ID == self {
				return got.Signature
			}
		case <-timer.C:
			return nil
		case <-gone:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
