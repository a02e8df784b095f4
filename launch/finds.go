package launch

import (
	"slices"
	"strings"

	"github.com/elrun/elrun/elastic"
)

const (
	// maxFound is how many of those that are found on the local network are kept, and asked
	// at a time.
	maxFound = 64
	// maxFoundPerAddr is how many of them may name the same address first.
	maxFoundPerAddr = 4
)

// finds are those that were found on the local network. Anybody there can make up any
// number of them. So the oldest makes way for the newest, among those of one address
// before all others; whoever has proved to belong to the job stays. It is not safe for
// concurrent use; the zero value is empty.
type finds struct {
	all []find // oldest first
}

// find is one of them.
type find struct {
	elastic.Member
	proved bool
}

// add notes a find, in place of an earlier one of the same ID.
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

// drop forgets the oldest find that fits.
func (f *finds) drop(fits func(find) bool) {
	if i := slices.IndexFunc(f.all, fits); i >= 0 {
		f.all = slices.Delete(f.all, i, i+1)
	}
}

// prove notes that a find belongs to the job.
func (f *finds) prove(id elastic.ID) {
	if i := f.index(id); i >= 0 {
		f.all[i].proved = true
	}
}

// index returns the place of an ID, -1 if it was not found.
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

// firstAddr returns the host of the first address of a find, as in /ip4/192.0.2.1.
func firstAddr(m elastic.Member) string {
	if len(m.Addrs) == 0 {
		return ""
	}
	parts := strings.SplitN(m.Addrs[0], "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}
