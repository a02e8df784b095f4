package elastic

import (
	"sync"

	"github.com/elrun/elrun/elastic/member"
)

// shared is what members that run in one process, as those of a simulation, have in common:
// views, which are equal at all. A nil one makes them for each.
type shared struct {
	machines *member.Views

	mu    sync.Mutex
	first *member.View
	views map[member.Hash]View
	line  []member.Hash // keys of views, the oldest first
}

// sharedViews is how many views are kept.
const sharedViews = 160

func newShared() *shared {
	return &shared{machines: member.NewViews(sharedViews), views: make(map[member.Hash]View)}
}

// config lets a machine take part.
func (s *shared) config(c member.Config) member.Config {
	if s != nil {
		c.Views = s.machines
	}
	return c
}

// newMachine makes the machine of a member of the first view.
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
	if s.first == nil {
		v, err := make()
		if err != nil {
			return nil, err
		}
		s.first = &v
	}
	return member.NewIn(s.config(c), *s.first)
}

// view returns a view of the machine in the form of this package; old is the one before.
func (s *shared) view(mv member.View, old View) View {
	if s == nil {
		return fromView(mv, old)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.views[mv.Hash()]; ok {
		return v
	}
	v := fromView(mv, old)
	s.views[mv.Hash()] = v
	if s.line = append(s.line, mv.Hash()); len(s.line) > sharedViews {
		delete(s.views, s.line[0])
		s.line = s.line[1:]
	}
	return v
}
