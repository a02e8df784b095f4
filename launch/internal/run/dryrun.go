package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/internal/hosts"
	"github.com/elrun/elrun/launch/spec"
)

// DryRun is launch.DryRun.
func DryRun(ctx context.Context, o spec.Options) ([]spec.HostPlan, error) {
	if len(o.Remote.Hosts) == 0 {
		return nil, fmt.Errorf("launch: %w: %w", spec.ErrOptions, errors.New("a dry run is for peers on other hosts: name the hosts"))
	}
	o.Output.LogDir, o.Output.Records = "", "" // nothing is made
	path, err := complete(ctx, &o)
	if err != nil {
		return nil, err
	}
	p, err := hosts.PlanFor(&o, path)
	if err != nil {
		return nil, err
	}
	plans := p.Preview(&o)
	room := 0
	for _, h := range plans {
		if h.Peers < 0 {
			return plans, nil // nobody knows
		}
		room += h.Peers
	}
	if least := o.Membership.MinPeers; room < least {
		return nil, fmt.Errorf("launch: %w: the hosts have room for %s, and --min-peers wants %d: name more hosts, or a lower minimum", spec.ErrOptions, printable.Plural(room, "peer", "peers"), least)
	}
	return plans, nil
}
