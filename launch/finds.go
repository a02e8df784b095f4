package launch

import (
	"slices"
	"strings"

	"github.com/elrun/elrun/elastic"
)

const (
	// maxFound bounds the peers found on the local network that are kept, and that are contacted
	// at the same time.
	maxFound = 64
	// maxFoundPerAddr bounds the finds whose first address is the same.
	maxFoundPerAddr = 4
)

// finds holds peers that were found on the local network. Anybody there can announce any number of
// false ones. So a new find evicts the oldest one, from the same address first, but never a peer
// that has proved that it belongs to the job. The zero value is empty. It is not safe for
// concurrent use.
type finds struct {
	all []find // oldest first
}

// find is one found peer.
type find struct {
	elastic.Member
	proved bool
}

// add records a find. It replaces an earlier find with the same ID.
func (f *finds) add(m elastic.Member) {
	if i := f.index(m.ID); i >= 0 {
		f.all[i].Member = m
		return
	}
	at, n := firstAddr(m), 0
	same := func(o find) bool { return !o.proved && firstAddr(o.Member) == at }
	for _, o := range f.all {
		if same(o) {
			n++
		}
	}
	switch {
	case n >= maxFoundPerAddr:
		f.drop(same)
	case len(f.all) >= maxFound:
		f.drop(func(o find) bool { return !o.proved })
	}
	if len(f.all) < maxFound {
		f.all = append(f.all, find{Member: m})
	}
}

// drop removes the oldest find for which fits is true.
func (f *finds) drop(fits func(find) bool) {
	if i := slices.IndexFunc(f.all, fits); i >= 0 {
		f.all = slices.Delete(f.all, i, i+1)
	}
}

// prove records that a find belongs to the job.
func (f *finds) prove(id elastic.ID) {
	if i := f.index(id); i >= 0 {
		f.all[i].proved = true
	}
}

// index returns the index of the find with an ID, or -1.
func (f *finds) index(id elastic.ID) int {
	return slices.IndexFunc(f.all, func(o find) bool { return o.ID == id })
}

// members returns the finds, newest first.
func (f *finds) members() []elastic.Member {
	var out []elastic.Member
	for _, o := range slices.Backward(f.all) {
		out = append(out, o.Member)
	}
	return out
}

// firstAddr returns the host part of a find's first address, as in /ip4/192.0.2.1, "" without an
// address.
func firstAddr(m elastic.Member) string {
	if len(m.Addrs) == 0 {
		return ""
	}
	parts := strings.SplitN(m.Addrs[0], "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}
