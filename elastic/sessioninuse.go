package elastic

import (
	"sync/atomic"

	"github.com/elrun/elrun/collective"
)

// sessionInUse holds the session that Next has made last. The goroutine of Next stores it, and the
// driver's goroutine revokes it when the view is lost.
type sessionInUse struct{ atomic.Pointer[Session] }

// revoke revokes the session, if there is one.
func (u *sessionInUse) revoke(cause error) {
	if s := u.Load(); s != nil {
		s.Comm.Revoke(cause)
	}
}

// revokeFor revokes the session if a lost member is in it. The error names the first such member.
func (u *sessionInUse) revokeFor(lost []Member) {
	s := u.Load()
	if s == nil {
		return
	}
	for _, m := range lost {
		if rank := s.View.Rank(m.ID); rank >= 0 {
			s.Comm.Revoke(&collective.PeerError{Rank: rank, Peer: m.ID.Short(), Cause: "out of the group"})
			return
		}
	}
}
