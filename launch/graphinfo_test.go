package launch

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func peersNode() nodeInfo { return nodeInfo{Name: "train", Kind: kindPeers, Peers: 2} }

func TestProgramMistakes(t *testing.T) {
	with := func(change func(n *nodeInfo), n nodeInfo) []nodeInfo {
		change(&n)
		return []nodeInfo{peersNode(), n}
	}
	for _, c := range []struct {
		name  string
		nodes []nodeInfo
		want  string // part of the error; "" for none
	}{
		{"p", []nodeInfo{peersNode()}, ""},
		{"p", []nodeInfo{peersNode(), serviceNode("a"), serviceNode("b", "a"), taskNode("c")}, ""},
		{"", []nodeInfo{peersNode()}, `program name ""`},
		{"p", nil, "0 nodes of peers"},
		{"p", []nodeInfo{peersNode(), {Name: "more", Kind: kindPeers, Peers: 1}}, "2 nodes of peers"},
		{"p", []nodeInfo{{Name: "train", Kind: kindPeers}}, "node train: 0 peers"},
		{"p", []nodeInfo{peersNode(), taskNode("train")}, `two nodes are named "train"`},
		{"p", []nodeInfo{peersNode(), taskNode("a b")}, `node name "a b"`},
		{"p", []nodeInfo{peersNode(), taskNode(".a")}, `node name ".a"`},
		{"p", []nodeInfo{peersNode(), {Name: "a", Kind: "ghost"}}, `unknown kind "ghost"`},
		{"p", []nodeInfo{peersNode(), {Name: "a", Kind: kindService}}, "0 methods"},
		{"p", []nodeInfo{peersNode(), {Name: "a", Kind: kindService, Methods: []string{"a/x(int) int", "a/x(int) string"}}}, `two methods are named "a/x"`},
		{"p", []nodeInfo{peersNode(), serviceNode("a", "b")}, `stops after "b", which is no service`},
		{"p", []nodeInfo{peersNode(), serviceNode("a", "train")}, `stops after "train", which is no service`},
		{"p", []nodeInfo{peersNode(), serviceNode("a", "b"), serviceNode("b", "a"), serviceNode("c")}, "services a, b wait for each other to stop"},
		{"p", []nodeInfo{peersNode(), serviceNode("a", "a")}, "services a wait for each other"},
		{"p", with(func(n *nodeInfo) { n.StopAfter = []string{"a"} }, taskNode("a")), "StopAfter is for services"},
		{"p", with(func(n *nodeInfo) { n.Restarts = -1 }, taskNode("a")), "-1 restarts"},
		{"p", with(func(n *nodeInfo) { n.Backoff = -time.Second }, taskNode("a")), "with a pause of -1s"},
		{"p", with(func(n *nodeInfo) { n.Group = "a/b" }, taskNode("a")), `group name "a/b"`},
	} {
		err := programInfo{c.name, c.nodes}.check()
		switch {
		case (err == nil) != (c.want == ""), err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("got %v, want %q in it", err, c.want)
		case err != nil && (len(err.Error()) > 200 || strings.Contains(err.Error(), "\n")):
			t.Errorf("%q is no short line", err)
		}
	}
}

func TestStopOrder(t *testing.T) {
	p := programInfo{"p", []nodeInfo{serviceNode("a", "c"), serviceNode("b"), peersNode(), serviceNode("c"), serviceNode("d", "b")}}
	got, err := p.stopOrder()
	if want := []string{"c", "b", "d", "a"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
