package elastic

import (
	"encoding/json"
	"fmt"

	"github.com/elrun/elrun/elastic/member"
)

// info is the description of a member that the membership carries besides the ID, encoded as JSON.
// The fields mean the same as in Member. Their keys have one letter because every view and every
// join carries such descriptions. A decoder ignores unknown keys and leaves missing fields empty.
type info struct {
	Index    int      `json:"i,omitempty"`
	Host     string   `json:"h,omitempty"`
	Launcher string   `json:"l,omitempty"`
	Process  string   `json:"p,omitempty"`
	Machine  string   `json:"m,omitempty"`
	Site     string   `json:"s,omitempty"`
	Addrs    []string `json:"a,omitempty"`
}

// toMember converts m to the type of package member, which has all fields but the ID as one text
// (info). If not all addresses fit in member.MaxInfo bytes, the last ones are omitted.
func toMember(m Member) (member.Member, error) {
	in := info{m.Index, m.Host, m.Launcher, m.Process, m.Machine, m.Site, m.Addrs}
	// Each iteration omits one more address: other peers may reach the member at the remaining
	// addresses, while no name can be omitted.
	for {
		b, err := json.Marshal(in)
		if err != nil {
			return member.Member{}, fmt.Errorf("elastic: describe %s: %w", m.ID, err)
		}
		if len(b) <= member.MaxInfo {
			return member.Member{ID: member.ID(m.ID), Info: string(b)}, nil
		}
		if len(in.Addrs) == 0 {
			return member.Member{}, fmt.Errorf("elastic: describe %s: the description has %d bytes without addresses, want at most %d: shorten the names of host, site and launcher",
				m.ID, len(b), member.MaxInfo)
		}
		in.Addrs = in.Addrs[:len(in.Addrs)-1]
	}
}

// fromMember is the inverse of toMember. A description that cannot be decoded gives a member
// without addresses, which others may still reach.
func fromMember(m member.Member) Member {
	var in info
	// A decoding that fails may have set some fields.
	if json.Unmarshal([]byte(m.Info), &in) != nil {
		in = info{}
	}
	return Member{ID: ID(m.ID), Index: in.Index, Host: in.Host, Addrs: in.Addrs, Launcher: in.Launcher, Process: in.Process,
		Machine: in.Machine, Site: in.Site}
}

// firstView returns the first view of a group of members.
func firstView(members []Member, grants []Grant) (member.View, error) {
	var all []member.Member
	for _, m := range members {
		one, err := toMember(m)
		if err != nil {
			return member.View{}, err
		}
		all = append(all, one)
	}
	var given []member.Grant
	for _, g := range grants {
		given = append(given, toGrant(g))
	}
	return member.First(all, given...)
}

// fromView converts a view of the machine to the form of this package. A member that is also in the
// view old is copied from old.
func fromView(v member.View, old View) View {
	out := View{Epoch: v.Epoch, Parent: v.Parent, Reason: v.Reason.String(), Members: make([]Member, len(v.Members))}
	for i, m := range v.Members {
		if rank := old.Rank(ID(m.ID)); rank >= 0 {
			out.Members[i] = old.Members[rank]
		} else {
			out.Members[i] = fromMember(m)
		}
	}
	out.lookUp()
	out.ring = newWatchRing(out.Hosts())
	// The voters are the first members of a view.
	for _, m := range out.Members[:v.Voters] {
		out.Voters = append(out.Voters, m.ID)
	}
	for _, g := range v.Grants {
		out.Grants = append(out.Grants, fromGrant(g))
	}
	for _, id := range v.Barred {
		out.Barred = append(out.Barred, ID(id))
	}
	return out
}
