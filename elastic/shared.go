package elastic

import (
	"sync"

	"github.com/elrun/elrun/elastic/member"
)

// shared holds data that members in one process, as in a simulation, have in common: views, which
// are equal at all members. So the memory of a simulation does not grow with the square of its
// members. With a nil shared each member makes its own data.
type shared struct {
	machines *member.Views // the same for the membership machines

	// mu guards the fields below.
	mu    sync.Mutex
	first *member.View // the first view; nil before the first member
	views map[member.Hash]View
	line  []member.Hash // keys of views, the oldest first
}

// sharedViews is the number of views that are kept.
const sharedViews = 160

// newShared returns an empty shared.
func newShared() *shared {
	return &shared{machines: member.NewViews(sharedViews), views: make(map[member.Hash]View)}
}

// config adds the shared views to the configuration of a machine.
func (s *shared) config(c member.Config) member.Config {
	if s != nil {
		c.Views = s.machines
	}
	return c
}

// newMachine returns the machine of a member of the first view.
func (s *shared) newMachine(c member.Config, first []Member) (*member.Machine, error) {
	make := func() (member.View, error) {
		var all []member.Member
		for _, m := range first {
			one, err := toMember(m)
			if err != nil {
				return member.View{}, err
			}
			all = append(all, one)
		}
		return member.First(all, c.Grants...)
	}
	if s == nil {
		v, err := make()
		if err != nil {
			return nil, err
		}
		return member.NewIn(c, v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The list first is equal at all members of the first view.
	if s.first == nil {
		v, err := make()
		if err != nil {
			return nil, err
		}
		s.first = &v
	}
	return member.NewIn(s.config(c), *s.first)
}

// view converts a view of the machine to the form of this package. The argument old is the view
// before mv.
func (s *shared) view(mv member.View, old View) View {
	if s == nil {
		return fromView(mv, old)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The hash covers the whole view, so equal hashes mean equal views.
	if v, ok := s.views[mv.Hash()]; ok {
		return v
	}
	v := fromView(mv, old)
	s.views[mv.Hash()] = v
	// A member that lags behind by more than sharedViews views makes its view anew.
	if s.line = append(s.line, mv.Hash()); len(s.line) > sharedViews {
		delete(s.views, s.line[0])
		s.line = s.line[1:]
	}
	return v
}
