package lint

import "slices"

// Back returns how many references between the files of a package run back up, and how many there are.
func Back(p *Package) (back, all int) {
	g := fileGraphOf(p)
	return g.back(g.order()), g.all()
}

// LeastBack tries all orders of the files and returns the least number of references that run back up.
func LeastBack(p *Package) int {
	g := fileGraphOf(p)
	least := g.all()
	var try func(order []int)
	try = func(order []int) {
		if len(order) == len(g.names) {
			least = min(least, g.back(order))
		}
		for i := range g.names {
			if !slices.Contains(order, i) {
				try(append(order[:len(order):len(order)], i))
			}
		}
	}
	try(nil)
	return least
}
