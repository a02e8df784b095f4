package wire

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func peersNode() NodeInfo { return NodeInfo{Name: "train", Kind: KindPeers, Peers: 2} }

func TestProgramMistakes(t *testing.T) {
	with := func(change func(n *NodeInfo), n NodeInfo) []NodeInfo {
		change(&n)
		return []NodeInfo{peersNode(), n}
	}
	for _, c := range []struct {
		name  string
		nodes []NodeInfo
		want  string // part of the error; "" for none
	}{
		{"p", []NodeInfo{peersNode()}, ""},
		{"p", []NodeInfo{peersNode(), service("a"), service("b", "a"), task("c")}, ""},
		{"", []NodeInfo{peersNode()}, `program name ""`},
		{"p", nil, "0 nodes of peers"},
		{"p", []NodeInfo{peersNode(), {Name: "more", Kind: KindPeers, Peers: 1}}, "2 nodes of peers"},
		{"p", []NodeInfo{{Name: "train", Kind: KindPeers}}, "node train: 0 peers"},
		{"p", []NodeInfo{peersNode(), task("train")}, `two nodes are named "train"`},
		{"p", []NodeInfo{peersNode(), task("a b")}, `node name "a b"`},
		{"p", []NodeInfo{peersNode(), task(".a")}, `node name ".a"`},
		{"p", []NodeInfo{peersNode(), {Name: "a", Kind: "ghost"}}, `unknown kind "ghost"`},
		{"p", []NodeInfo{peersNode(), {Name: "a", Kind: KindService}}, "0 methods"},
		{"p", []NodeInfo{peersNode(), {Name: "a", Kind: KindService, Methods: []string{"a/x(int) int", "a/x(int) string"}}}, `two methods are named "a/x"`},
		{"p", []NodeInfo{peersNode(), service("a", "b")}, `stops after "b", which is no service`},
		{"p", []NodeInfo{peersNode(), service("a", "train")}, `stops after "train", which is no service`},
		{"p", []NodeInfo{peersNode(), service("a", "b"), service("b", "a"), service("c")}, "services a, b wait for each other to stop"},
		{"p", []NodeInfo{peersNode(), service("a", "a")}, "services a wait for each other"},
		{"p", with(func(n *NodeInfo) { n.StopAfter = []string{"a"} }, task("a")), "StopAfter is for services"},
		{"p", with(func(n *NodeInfo) { n.Restarts = -1 }, task("a")), "-1 restarts"},
		{"p", with(func(n *NodeInfo) { n.Backoff = -time.Second }, task("a")), "with a pause of -1s"},
		{"p", with(func(n *NodeInfo) { n.Group = "a/b" }, task("a")), `group name "a/b"`},
	} {
		err := ProgramInfo{c.name, c.nodes}.Check()
		switch {
		case (err == nil) != (c.want == ""), err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("got %v, want %q in it", err, c.want)
		case err != nil && (len(err.Error()) > 200 || strings.Contains(err.Error(), "\n")):
			t.Errorf("%q is no short line", err)
		}
	}
}

func TestStopOrder(t *testing.T) {
	p := ProgramInfo{"p", []NodeInfo{service("a", "c"), service("b"), peersNode(), service("c"), service("d", "b")}}
	got, err := p.StopOrder()
	if want := []string{"c", "b", "d", "a"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func service(name string, after ...string) NodeInfo {
	return NodeInfo{Name: name, Kind: KindService, Methods: []string{name + "(int) int"}, StopAfter: after}
}

func task(name string) NodeInfo { return NodeInfo{Name: name, Kind: KindTask} }
