package collective

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

// topology has the hosts and the sites of the ranks. Ranks are ranks of the transport. Calibrate
// sets the leaders before any other call, so the topology needs no lock.
type topology struct {
	leaders []int // first rank of the host of each rank, the same at all ranks; nil before Calibrate
	sites   []int // see Options.Sites
}

// byHost groups ranks by host: the ranks of a host share memory.
func (t *topology) byHost(ranks []int) [][]int {
	return groupBy(ranks, func(at int) int { return t.leaders[at] })
}

// bySite groups ranks by site. It returns nil if a hierarchy of sites has no advantage: if the
// sites are not known, if there is only one site, or if each site has one rank. A host whose ranks
// are in two sites belongs to the site of its first rank.
func (t *topology) bySite(ranks []int) [][]int {
	if t.sites == nil {
		return nil
	}
	sites := groupBy(ranks, func(at int) int { return t.sites[t.leaders[at]] })
	if len(sites) == 1 || len(sites) == len(ranks) {
		return nil
	}
	return sites
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
