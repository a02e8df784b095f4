package collective

import "slices"

// level is the position of this rank in a hierarchy: the ranks of a communicator form
// groups with faster communication inside than between groups. A group is a host, whose
// ranks share memory, or a site. Each group has a leader, its first rank.
type level struct {
	local      *Comm       // the ranks of this group
	localRanks []int       // the same ranks as ranks of the whole communicator, the leader first
	leaders    *Comm       // the leaders of all groups, which may have a level of their own; nil at other ranks
	groups     int         // number of groups
	lock       *ticketLock // serialises the calls in local, and the beginning of calls in leaders
}

// Colors of the communicators inside a communicator, for childID. Users cannot pass them to
// Split, as Split makes no communicator for a negative color.
const (
	localColor  = -2 - iota // the ranks of a host
	leaderColor             // the leaders of all hosts
	siteColor               // the leaders of the hosts of a site
	headColor               // the leaders of all sites
)

// setLeaders records the host of each rank, by the leader of the host: leaders[r] is the first
// rank that shares memory with rank r of the transport, or r itself if r shares none. leaders
// is the same at all ranks.
func (ep *endpoint) setLeaders(leaders []int) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.leaders = leaders
}

// initTopology initialises the topology of a new communicator: a lane if all its ranks share
// memory, otherwise a level for its hosts and sites, with a lane for the ranks of this
// host.
func (c *Comm) initTopology(lane int) {
	c.lane = c.assignLane(lane)
	if c.lane != nil || c.leaders == nil {
		return
	}
	hosts := groupBy(c.transportRanks(), func(at int) int { return c.leaders[at] })
	if len(hosts) == c.size { // one rank per host
		c.level = c.bySite()
		return
	}
	c.level = c.newLevel(hosts, localColor, leaderColor)
	c.level.local.lane = c.level.local.assignLane(lane)
	if c.level.leaders != nil {
		c.level.leaders.level = c.level.leaders.bySite()
	}
}

// bySite returns the level that groups the ranks of c by site. It is nil if sites bring no
// gain: they are not known, there is only one, or each has one rank. A host whose ranks are
// in two sites belongs to the site of its first rank.
func (c *Comm) bySite() *level {
	if c.opts.Sites == nil {
		return nil
	}
	sites := groupBy(c.transportRanks(), func(at int) int { return c.opts.Sites[c.leaders[at]] })
	if len(sites) == 1 || len(sites) == c.size {
		return nil
	}
	return c.newLevel(sites, siteColor, headColor)
}

// groupBy groups ranks by a key, with the groups in the order of their first ranks.
func groupBy(ranks []int, key func(rank int) int) [][]int {
	var groups [][]int
	at := make(map[int]int) // index of the group, by key
	for _, rank := range ranks {
		i, seen := at[key(rank)]
		if !seen {
			i = len(groups)
			at[key(rank)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], rank)
	}
	return groups
}

// newLevel returns a level for groups of the ranks of c, given as ranks of the transport.
// local and leader are the colors of its two communicators.
func (c *Comm) newLevel(groups [][]int, local, leader int) *level {
	l := &level{groups: len(groups), lock: new(ticketLock)}
	first := make([]int, 0, len(groups))
	for _, g := range groups {
		first = append(first, g[0])
		if !slices.Contains(g, c.self) {
			continue
		}
		l.local = c.subgroupComm(g, local)
		for _, at := range g {
			l.localRanks = append(l.localRanks, c.commRank(at))
		}
	}
	if slices.Contains(first, c.self) {
		l.leaders = c.subgroupComm(first, leader)
	}
	return l
}

// transportRanks returns the ranks of c as ranks of the transport.
func (c *Comm) transportRanks() []int {
	all := make([]int, c.size)
	for rank := range all {
		all[rank] = c.transportRank(rank)
	}
	return all
}

// commRank converts a rank of the transport to a rank of c. It is the inverse of transportRank, and
// returns -1 if the rank is not in c.
func (c *Comm) commRank(at int) int {
	if c.ranks == nil {
		return at
	}
	return slices.Index(c.ranks, at)
}

// subgroupComm returns a communicator of some ranks of the transport, without communication: each
// of these ranks makes it on its own.
func (c *Comm) subgroupComm(ranks []int, color int) *Comm {
	id := childID(c.id, uint32(ranks[0]), color)
	return &Comm{endpoint: c.endpoint, seq: c.sequence(id, nil), id: id, rank: slices.Index(ranks, c.self), size: len(ranks), ranks: ranks}
}
