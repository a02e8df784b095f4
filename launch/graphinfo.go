package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kinds of nodes.
const (
	kindPeers   = "peers"
	kindService = "service"
	kindTask    = "task"
)

const (
	maxNodes    = 256 // services and tasks of a program
	maxNodeName = 32  // bytes
	maxMethods  = 64  // of a service
	maxMethod   = 512 // bytes of a method's name and types
)

// programInfo describes a program to its launcher, which does not run its code. All processes of a
// program make the same one, as they build the same graph.
type programInfo struct {
	Name  string     `json:"name"`
	Nodes []nodeInfo `json:"nodes"` // in the order of their declaration
}

// nodeInfo describes a node.
type nodeInfo struct {
	Name      string        `json:"name"`
	Kind      string        `json:"kind"`
	Peers     int           `json:"peers,omitempty"`
	Restarts  int           `json:"restarts,omitempty"`
	Backoff   time.Duration `json:"backoff,omitempty"`
	Group     string        `json:"group,omitempty"`
	StopAfter []string      `json:"stop_after,omitempty"` // services
	Methods   []string      `json:"methods,omitempty"`    // of a service: names and types
}

// check reports the first mistake in a program, in a line.
func (p programInfo) check() error {
	if err := checkNodeName("program", p.Name); err != nil {
		return err
	}
	peers := 0
	kinds := make(map[string]string)
	for _, n := range p.Nodes {
		if err := n.check(); err != nil {
			return err
		}
		if kinds[n.Name] != "" {
			return fmt.Errorf("two nodes are named %q: give each a name of its own", n.Name)
		}
		kinds[n.Name] = n.Kind
		if n.Kind == kindPeers {
			peers++
		}
	}
	switch {
	case peers != 1:
		return fmt.Errorf("%d nodes of peers, want one: declare the group that trains by Peers, once", peers)
	case len(p.Nodes)-peers > maxNodes:
		return fmt.Errorf("%d services and tasks, at most %d", len(p.Nodes)-peers, maxNodes)
	}
	return p.checkStops(kinds)
}

// checkNodeName reports a name that cannot be part of a file name and of a line's prefix.
func checkNodeName(what, name string) error {
	plain := strings.IndexFunc(name, func(r rune) bool { return !nameRune(r) }) < 0
	if name == "" || len(name) > maxNodeName || !plain || name[0] == '.' || name[0] == '-' {
		return fmt.Errorf("%s name %q: want 1 to %d letters, digits, '.', '_' and '-', the first no '.' or '-'", what, name, maxNodeName)
	}
	return nil
}

// check reports what is wrong with a node by itself.
func (n nodeInfo) check() error {
	if err := checkNodeName("node", n.Name); err != nil {
		return err
	}
	long := func(m string) bool { return len(m) > maxMethod }
	if twice := n.twice(); twice != "" {
		return fmt.Errorf("two methods are named %q: give each a name of its own", twice)
	}
	switch {
	case !slices.Contains([]string{kindPeers, kindService, kindTask}, n.Kind):
		return fmt.Errorf("node %s: unknown kind %q", n.Name, n.Kind)
	case n.Kind == kindPeers && (n.Peers < 1 || n.Peers > maxPeers):
		return fmt.Errorf("node %s: %d peers, want 1 to %d", n.Name, n.Peers, maxPeers)
	case n.Kind == kindService && len(n.Methods) == 0, len(n.Methods) > maxMethods, slices.ContainsFunc(n.Methods, long):
		return fmt.Errorf("node %s: %d methods, want 1 to %d with short names", n.Name, len(n.Methods), maxMethods)
	case n.Restarts < 0 || n.Backoff < 0:
		return fmt.Errorf("node %s: %d restarts, the second after %v; want none or more", n.Name, n.Restarts, n.Backoff)
	case len(n.StopAfter) > 0 && n.Kind != kindService:
		return fmt.Errorf("node %s: StopAfter is for services: peers and tasks end by themselves", n.Name)
	case n.Group != "":
		return checkNodeName("group", n.Group)
	}
	return nil
}

// twice returns a name that two methods have, "" if there is none.
func (n nodeInfo) twice() string {
	seen := make(map[string]bool)
	for _, m := range n.Methods {
		name, _, _ := strings.Cut(m, "(")
		if seen[name] {
			return name
		}
		seen[name] = true
	}
	return ""
}

// checkStops reports services that are to stop after something else than a service, or in a circle.
func (p programInfo) checkStops(kinds map[string]string) error {
	for _, n := range p.Nodes {
		for _, other := range n.StopAfter {
			if kinds[other] != kindService {
				return fmt.Errorf("service %s stops after %q, which is no service of the program", n.Name, other)
			}
		}
	}
	_, err := p.stopOrder()
	return err
}

// stopOrder returns the services in the order in which they stop: the one declared last first, but
// none before those that its StopAfter names.
func (p programInfo) stopOrder() ([]string, error) {
	var left []nodeInfo
	for _, n := range p.Nodes {
		if n.Kind == kindService {
			left = append(left, n)
		}
	}
	slices.Reverse(left)
	var order []string
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(n nodeInfo) bool {
			return !slices.ContainsFunc(n.StopAfter, func(other string) bool { return !slices.Contains(order, other) })
		})
		if i < 0 {
			var names []string
			for _, n := range left {
				names = append(names, n.Name)
			}
			slices.Sort(names)
			return nil, fmt.Errorf("services %s wait for each other to stop: remove a StopAfter", strings.Join(names, ", "))
		}
		order = append(order, left[i].Name)
		left = slices.Delete(left, i, i+1)
	}
	return order, nil
}

// digest tells programs apart.
func (p programInfo) digest() string {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // there are only strings and numbers in it
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// others returns the services and tasks.
func (p programInfo) others() []nodeInfo {
	return slices.DeleteFunc(slices.Clone(p.Nodes), func(n nodeInfo) bool { return n.Kind == kindPeers })
}

// peers returns the node of the peers, of a program that has been checked.
func (p programInfo) peers() nodeInfo {
	i := slices.IndexFunc(p.Nodes, func(n nodeInfo) bool { return n.Kind == kindPeers })
	return p.Nodes[max(0, i)]
}

// ErrProgram: a program has a mistake, because of which nothing of it was started.
var ErrProgram = errors.New("bad program")
