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
	Host  string   `json:"host"`  // name of its host, for people and for grouping
	Addrs []string `json:"addrs"` // multiaddrs at which it listens
	// Launcher names the process that started it and knows of its death: the ID of the
	// launcher, the same for all that it started, or empty.
	Launcher string `json:"launcher,omitempty"`
	// Process tells processes of one launcher apart, in the words of Config.Inspect; empty
	// if that is not known.
	Process string `json:"process,omitempty"`
}

// View is the membership of one epoch. It is immutable.
type View struct {
	Epoch   uint64
	Parent  [32]byte // Hash of the view before; zero for the first
	Members []Member // in rank order
	Voters  []ID     // those of Members that decide the next view
	Reason  string   // start, join, leave, lost, kick, forced, vote, grant or renew; not part of Hash
	Grants  []Grant  // by which peers join; not part of Hash
	Barred  []ID     // were kicked; not part of Hash
}

// Rank returns the index of id, or -1.
func (v View) Rank(id ID) int {
	return slices.IndexFunc(v.Members, func(m Member) bool { return m.ID == id })
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
