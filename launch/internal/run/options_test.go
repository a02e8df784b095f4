package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/spec"
)

// TestOptionsAsSent fixes the names and values by which launchers pass options on: the start order
// and the environment of a peer, and the order to the agent of another host.
func TestOptionsAsSent(t *testing.T) {
	o := spec.Options{Program: "true", Args: []string{"-a"}, Peers: 2, Job: "m", Forward: []string{"A=1"}, Join: true, Ticket: "ticket",
		Network:    spec.Network{Transport: "direct", Encrypt: "always", Relay: "never", Listen: "all", LAN: true, PortMap: true, Site: "berlin"},
		Remote:     spec.Remote{SSH: "ssh -q", ConnectTimeout: 3 * time.Second, Dir: "/work", Detach: true},
		Membership: spec.Membership{JoinTimeout: time.Second, MinPeers: 3, Quorum: "any", RejoinTimeout: time.Minute, StateRate: 5}, Grace: 90 * time.Second}
	o.Defaults()
	order := commonOrder(&o, "name")
	order.Launcher, order.PID, order.HostKey = "", 0, nil
	plan, err := hosts.PlanFor(&o, "")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, message := range []any{order, plan.Begin, (&supervisor{o: &o}).environment(0, 2).List()} {
		text, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s\n", text)
	}
	const want = `{"ticket":"ticket","join_timeout":1000000000,"lan":true,"port_map":true,"launcher":"","pid":0,"any":true,"min_peers":3,"rejoin_timeout":60000000000,"state_rate":5}
{"protocol":4,"job":"m","program":"dHJ1ZQ==","args":["LWE="],"env":["QT0x"],"dir":"L3dvcms=","detach":true,"grace":90000000000}
["ELRUN_JOB=m","ELRUN_INDEX=0","ELRUN_NP=2","ELRUN_FD=3","ELRUN_TRANSPORT=direct","ELRUN_ENCRYPT=always","ELRUN_RELAY=never","ELRUN_LISTEN=all","ELRUN_SITE=berlin","ELRUN_GRACE=1m30s"]
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}
