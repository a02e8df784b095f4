package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/launch/spec"
)

// The kinds of nodes.
const (
	KindPeers   = "peers"
	KindService = "service"
	KindTask    = "task"
)

const (
	maxNodeName = 32  // bytes
	maxMethods  = 64  // methods of a service
	maxMethod   = 512 // bytes of a method's name and types
)

// ProgramInfo describes a program to its launcher, which does not run the program's code. All
// processes of a program build the same graph, and so send the same ProgramInfo.
type ProgramInfo struct {
	Name  string     `json:"name"`
	Nodes []NodeInfo `json:"nodes"` // in the order of their declaration
}

// NodeInfo describes a node.
type NodeInfo struct {
	Name      string        `json:"name"`
	Kind      string        `json:"kind"`                 // KindPeers, KindService or KindTask
	Peers     int           `json:"peers,omitempty"`      // number of peers, for KindPeers
	Restarts  int           `json:"restarts,omitempty"`   // largest number of restarts; see Restart
	Backoff   time.Duration `json:"backoff,omitempty"`    // pause before the second restart in a row; 0 means 1 s
	Group     string        `json:"group,omitempty"`      // nodes of one group run on one host
	StopAfter []string      `json:"stop_after,omitempty"` // services
	Methods   []string      `json:"methods,omitempty"`    // of a service: names and types
}

// Check returns the first mistake in a program as an error of one line. A launcher also calls
// check, for a description from a process that it does not trust.
func (p ProgramInfo) Check() error {
	if err := checkNodeName("program", p.Name); err != nil {
		return err
	}
	peers := 0
	// Names identify nodes in ELRUN_NODE, in messages and in the names of logs, so they are
	// unique.
	kinds := make(map[string]string)
	for _, n := range p.Nodes {
		if err := n.check(); err != nil {
			return err
		}
		if kinds[n.Name] != "" {
			return fmt.Errorf("two nodes are named %q: give each a name of its own", n.Name)
		}
		kinds[n.Name] = n.Kind
		if n.Kind == KindPeers {
			peers++
		}
	}
	// Services and tasks work for the group of peers, so there is exactly one such group.
	switch {
	case peers != 1:
		return fmt.Errorf("%d nodes of peers, want one: declare the group that trains by Peers, once", peers)
	case len(p.Nodes)-peers > spec.MaxNodes:
		return fmt.Errorf("%d services and tasks, at most %d", len(p.Nodes)-peers, spec.MaxNodes)
	}
	return p.checkStops(kinds)
}

// checkNodeName returns an error for a name that is not valid in a file name and in the prefix of
// a line.
func checkNodeName(what, name string) error {
	plain := strings.IndexFunc(name, func(r rune) bool { return !spec.NameRune(r) }) < 0
	if name == "" || len(name) > maxNodeName || !plain || name[0] == '.' || name[0] == '-' {
		return fmt.Errorf("%s name %q: want 1 to %d letters, digits, '.', '_' and '-', not beginning with '.' or '-'", what, name, maxNodeName)
	}
	return nil
}

// check returns an error for a mistake within a node.
func (n NodeInfo) check() error {
	if err := checkNodeName("node", n.Name); err != nil {
		return err
	}
	long := func(m string) bool { return len(m) > maxMethod }
	if twice := n.duplicateMethod(); twice != "" {
		return fmt.Errorf("two methods are named %q: give each a name of its own", twice)
	}
	switch {
	case !slices.Contains([]string{KindPeers, KindService, KindTask}, n.Kind):
		return fmt.Errorf("node %s: unknown kind %q", n.Name, n.Kind)
	case n.Kind == KindPeers && (n.Peers < 1 || n.Peers > spec.MaxPeers):
		return fmt.Errorf("node %s: %d peers, want 1 to %d", n.Name, n.Peers, spec.MaxPeers)
	case n.Kind == KindService && len(n.Methods) == 0, len(n.Methods) > maxMethods, slices.ContainsFunc(n.Methods, long):
		return fmt.Errorf("node %s: %d methods: want 1 to %d, each with at most %d bytes of name and types", n.Name, len(n.Methods), maxMethods, maxMethod)
	case n.Restarts < 0 || n.Backoff < 0:
		return fmt.Errorf("node %s: %d restarts with a pause of %v: want 0 or more of both", n.Name, n.Restarts, n.Backoff)
	case len(n.StopAfter) > 0 && n.Kind != KindService:
		return fmt.Errorf("node %s: StopAfter is for services: peers and tasks end by themselves", n.Name)
	case n.Group != "":
		return checkNodeName("group", n.Group)
	}
	return nil
}

// duplicateMethod returns a name that two methods of the node share, "" if there is none.
func (n NodeInfo) duplicateMethod() string {
	seen := make(map[string]bool)
	for _, m := range n.Methods {
		// A method is named NODE/METHOD(REQUEST) RESULT: the types follow the bracket.
		name, _, _ := strings.Cut(m, "(")
		if seen[name] {
			return name
		}
		seen[name] = true
	}
	return ""
}

// checkStops returns an error for a service whose StopAfter names no service, or for a cycle.
func (p ProgramInfo) checkStops(kinds map[string]string) error {
	for _, n := range p.Nodes {
		for _, other := range n.StopAfter {
			if kinds[other] != KindService {
				return fmt.Errorf("service %s stops after %q, which is no service of the program", n.Name, other)
			}
		}
	}
	_, err := p.StopOrder()
	return err
}

// StopOrder returns the services in the order in which they stop: the service declared last is
// first, but no service stops before the services of its StopAfter. A cycle is an error. The order
// is a topological sort, by a search that is not linear and need not be: MaxNodes is small.
func (p ProgramInfo) StopOrder() ([]string, error) {
	var left []NodeInfo
	for _, n := range p.Nodes {
		if n.Kind == KindService {
			left = append(left, n)
		}
	}
	slices.Reverse(left)
	var order []string
	for len(left) > 0 {
		// The next service is the first one whose StopAfter services have all been placed.
		i := slices.IndexFunc(left, func(n NodeInfo) bool {
			return !slices.ContainsFunc(n.StopAfter, func(other string) bool { return !slices.Contains(order, other) })
		})
		// No service qualifies: the remaining services form a cycle.
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

// Digest returns a hash of the description. Processes with different digests have different
// graphs: another version of the program, or other arguments.
func (p ProgramInfo) Digest() string {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // never happens: there are only strings and numbers
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Others returns the services and tasks.
func (p ProgramInfo) Others() []NodeInfo {
	return slices.DeleteFunc(slices.Clone(p.Nodes), func(n NodeInfo) bool { return n.Kind == KindPeers })
}

// Peers returns the node of the peers. The program must have passed check.
func (p ProgramInfo) Peers() NodeInfo {
	i := slices.IndexFunc(p.Nodes, func(n NodeInfo) bool { return n.Kind == KindPeers })
	return p.Nodes[max(0, i)]
}
