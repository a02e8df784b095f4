package elastic

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/elrun/elrun/elastic/member"
)

// ID is the identity of one process start: the text form of its libp2p peer ID. No other process
// ever uses it again.
type ID string

// Short returns the last eight characters, by which logs name a peer.
func (id ID) Short() string { return string(id[max(0, len(id)-8):]) }

// Member is one peer of a view.
type Member struct {
	ID    ID       `json:"id"`
	Index int      `json:"index"` // index among the peers of the member's launcher
	Host  string   `json:"host"`  // name of the member's host, for people
	Addrs []string `json:"addrs"` // multiaddrs at which the member listens
	// Launcher is the ID of the launcher that started the member and observes its death; empty if
	// the member has no launcher.
	Launcher string `json:"launcher,omitempty"`
	// Process identifies the process among all processes of its launcher, in a form that
	// Config.Inspect understands; empty if unknown.
	Process string `json:"process,omitempty"`
	// Machine identifies the host, as host names may be ambiguous: it is equal for members of one
	// host and differs between hosts. If Machine is empty, Host identifies the host.
	Machine string `json:"machine,omitempty"`
	// Site names the location of the host. The network within a site is faster than between sites.
	// Empty if unknown.
	Site string `json:"site,omitempty"`
}

// host returns an identifier of the member's host, or "" if it is unknown. An identifier made of a
// Machine never equals an identifier made of a Host.
func (m Member) host() string {
	switch {
	case m.Machine != "":
		return "machine " + m.Machine
	case m.Host != "":
		return "name " + m.Host
	}
	return ""
}

// hostKey is like host, but returns a unique key for a member whose host is unknown.
func (m Member) hostKey() string { return cmp.Or(m.host(), "peer "+string(m.ID)) }

// Beside reports whether two members are known to be on one host.
func (m Member) Beside(o Member) bool { return m.host() != "" && m.host() == o.host() }

// View is the membership of one epoch. It is immutable.
type View struct {
	Epoch   uint64
	Parent  [32]byte // Hash of the view before; zero for the first view
	Members []Member // in rank order
	Voters  []ID     // the members that decide the next view
	Reason  string   // start, join, leave, lost, kick, forced, vote, grant or renew; not part of Hash
	Grants  []Grant  // the grants by which peers join; not part of Hash
	Barred  []ID     // IDs that were kicked; not part of Hash

	ranks map[ID]int32 // by ID, for views with many members; nil for few
	ring  *watchRing   // the watchers of each member; nil until it is computed
}

// A view with lookedUp members or more has a table of ranks.
const lookedUp = 32

// Rank returns the rank of the member id, or -1.
func (v View) Rank(id ID) int {
	if v.ranks != nil {
		if rank, ok := v.ranks[id]; ok {
			return int(rank)
		}
		return -1
	}
	return slices.IndexFunc(v.Members, func(m Member) bool { return m.ID == id })
}

// Grant returns the grant of a key; ok is false if the view has none.
func (v View) Grant(key ID) (g Grant, ok bool) {
	i := slices.IndexFunc(v.Grants, func(g Grant) bool { return g.Key == key })
	if i < 0 {
		return Grant{}, false
	}
	return v.Grants[i], true
}

// Hosts returns the number of each member's host, by rank. Hosts are numbered from 0 in the order
// of their first ranks. A member whose host is unknown counts as a host of its own.
func (v View) Hosts() []int {
	return number(v.Members, func(m Member, rank int) string {
		if h := m.host(); h != "" {
			return h
		}
		return fmt.Sprint("rank ", rank)
	})
}

// Sites returns the number of each member's site, by rank, from 0 on. The site of a host is the
// site of the host's first member. Sites returns nil if the site of some host is unknown, or if all
// hosts are at one site.
func (v View) Sites() []int {
	first, named := make(map[int]string), true // first: site by number of the host; named: all sites are known
	hosts := v.Hosts()
	sites := number(v.Members, func(m Member, rank int) string {
		if _, seen := first[hosts[rank]]; !seen {
			first[hosts[rank]] = m.Site
		}
		named = named && first[hosts[rank]] != ""
		return first[hosts[rank]]
	})
	if !named || len(sites) == 0 || slices.Max(sites) == 0 {
		return nil
	}
	return sites
}

// number numbers the members from 0 on. Members with equal keys get the same number.
func number(members []Member, key func(m Member, rank int) string) []int {
	out, numbers := make([]int, len(members)), make(map[string]int)
	for rank, m := range members {
		k := key(m, rank)
		if _, seen := numbers[k]; !seen {
			numbers[k] = len(numbers)
		}
		out[rank] = numbers[k]
	}
	return out
}

// lookUp makes the table of ranks of a large view.
func (v *View) lookUp() {
	if len(v.Members) < lookedUp {
		return
	}
	v.ranks = make(map[ID]int32, len(v.Members))
	for i, m := range v.Members {
		v.ranks[m.ID] = int32(i)
	}
}

// changes returns the members of v that are not in o, and the members of o that are not in v.
// Members in both must have the same order in both.
func (v View) changes(o View) (came, gone []Member) {
	next := 0
	for _, m := range o.Members {
		switch {
		// Members that stay keep their order, so one pass over both lists finds them.
		case next < len(v.Members) && v.Members[next].ID == m.ID:
			next++
		case v.Rank(m.ID) < 0:
			gone = append(gone, m)
		}
	}
	for _, m := range v.Members {
		if o.Rank(m.ID) < 0 {
			came = append(came, m)
		}
	}
	return came, gone
}

// Hash returns the view's lineage: a SHA-256 hash of the epoch, the parent's hash, and the IDs of
// members and voters in order. The hash does not cover addresses.
func (v View) Hash() [32]byte {
	h := sha256.New()
	b := binary.LittleEndian.AppendUint64(nil, v.Epoch)
	b = append(b, v.Parent[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v.Members)))
	for _, m := range v.Members {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(m.ID))), m.ID...)
	}
	for _, id := range v.Voters {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(id))), id...)
	}
	h.Write(b)
	return [32]byte(h.Sum(nil))
}

// String returns the epoch and the members' short IDs.
func (v View) String() string {
	s := fmt.Sprintf("epoch %d:", v.Epoch)
	for _, m := range v.Members {
		s += " " + m.ID.Short()
	}
	return s
}

// Grant admits peers that prove that they hold its key. Grants are part of the view: members issue
// grants, count their uses and revoke them by the agreement that also decides the membership. So a
// newcomer may ask any member, even after the issuer of the grant has died, and only one of two
// newcomers gets the last use.
type Grant struct {
	Key     ID     // public key that signs for a newcomer, in the form of an ID
	Issuer  ID     // the member that issued the grant; "" for a grant of the first view
	Made    int64  // time of issue, in Unix seconds
	Expiry  int64  // end of validity, in Unix seconds; 0 for no expiry
	Uses    uint64 // number of peers that the grant admits; 0 for any number
	Used    uint64 // number of peers that the grant has admitted
	Revoked bool
	Record  string // data of the user of this package, which the package only carries; at most member.MaxRecord bytes
}

// Left reports whether the grant admits another peer. It does not check the expiry.
func (g Grant) Left() bool { return !g.Revoked && (g.Uses == 0 || g.Used < g.Uses) }

// Entry is the right by which a newcomer joins.
type Entry struct {
	By  ID // key of a grant; "" if none is needed
	Was ID // the former ID of a member that comes back, for which the grant counts no further use; "" for a new peer
}

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

// toGrant converts a grant to the form of elastic/member.
func toGrant(g Grant) member.Grant {
	return member.Grant{Key: member.ID(g.Key), Issuer: member.ID(g.Issuer), Made: g.Made, Expiry: g.Expiry,
		Uses: g.Uses, Used: g.Used, Revoked: g.Revoked, Record: g.Record}
}

// fromGrant is the inverse of toGrant.
func fromGrant(g member.Grant) Grant {
	return Grant{Key: ID(g.Key), Issuer: ID(g.Issuer), Made: g.Made, Expiry: g.Expiry,
		Uses: g.Uses, Used: g.Used, Revoked: g.Revoked, Record: g.Record}
}
