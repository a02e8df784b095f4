package elastic

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// ID names one process start: the text form of its libp2p peer ID. It is never
// used again by another process.
type ID string

// Short returns the last eight characters, by which logs name a peer.
func (id ID) Short() string { return string(id[max(0, len(id)-8):]) }

// Member is one peer of a view.
type Member struct {
	ID    ID       `json:"id"`
	Index int      `json:"index"` // local index at its launcher
	Host  string   `json:"host"`  // name of its host, for people
	Addrs []string `json:"addrs"` // multiaddrs at which it listens
	// Launcher names the process that started it and knows of its death: the ID of the
	// launcher, the same for all that it started, or empty.
	Launcher string `json:"launcher,omitempty"`
	// Process tells processes of one launcher apart, in the words of Config.Inspect; empty
	// if that is not known.
	Process string `json:"process,omitempty"`
	// Machine tells hosts apart, whose names may be the same: members of one host have the same
	// one, and others another. Where it is empty the name counts.
	Machine string `json:"machine,omitempty"`
	// Site names the place of the host, within which the network is faster than to other
	// places; empty if that is not known.
	Site string `json:"site,omitempty"`
}

// host tells hosts apart, "" if it is not known on which one the member is. Machines are not
// taken for names.
func (m Member) host() string {
	switch {
	case m.Machine != "":
		return "machine " + m.Machine
	case m.Host != "":
		return "name " + m.Host
	}
	return ""
}

// Beside reports whether two members are known to be on one host.
func (m Member) Beside(o Member) bool { return m.host() != "" && m.host() == o.host() }

// View is the membership of one epoch. It is immutable.
type View struct {
	Epoch   uint64
	Parent  [32]byte // Hash of the view before; zero for the first
	Members []Member // in rank order
	Voters  []ID     // those of Members that decide the next view
	Reason  string   // start, join, leave, lost, kick, forced, vote, grant or renew; not part of Hash
	Grants  []Grant  // by which peers join; not part of Hash
	Barred  []ID     // were kicked; not part of Hash

	ranks map[ID]int32 // of many members; nil for few
}

// lookedUp is from how many members on a view has a table of ranks.
const lookedUp = 32

// Rank returns the index of id, or -1.
func (v View) Rank(id ID) int {
	if v.ranks != nil {
		if rank, ok := v.ranks[id]; ok {
			return int(rank)
		}
		return -1
	}
	return slices.IndexFunc(v.Members, func(m Member) bool { return m.ID == id })
}

// Hosts numbers the hosts of the members, by rank, in the order of their first ranks. A member of
// which it is not known has a host of its own.
func (v View) Hosts() []int {
	return number(v.Members, func(m Member, rank int) string {
		if h := m.host(); h != "" {
			return h
		}
		return fmt.Sprint("rank ", rank)
	})
}

// Sites numbers the sites of the members, by rank, a host being where its first member says. It is
// nil if some host does not say, or if all are at one site: then there is nothing to tell apart.
func (v View) Sites() []int {
	first, named := make(map[int]string), true // by number of the host
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

// number gives members that have a key in common the same number, from 0 on.
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

// lookUp gives a view of many members its table.
func (v *View) lookUp() {
	if len(v.Members) < lookedUp {
		return
	}
	v.ranks = make(map[ID]int32, len(v.Members))
	for i, m := range v.Members {
		v.ranks[m.ID] = int32(i)
	}
}

// changes returns the members of v that are not in o, and those of o that are not in v.
// Those in both stand in the same order.
func (v View) changes(o View) (came, gone []Member) {
	next := 0
	for _, m := range o.Members {
		switch {
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

// Hash is the view's lineage: it covers the epoch, the parent's hash, and the IDs of
// members and voters in order. Addresses do not count.
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

// String names the epoch and the members' short IDs.
func (v View) String() string {
	s := fmt.Sprintf("epoch %d:", v.Epoch)
	for _, m := range v.Members {
		s += " " + m.ID.Short()
	}
	return s
}
