package main

import (
	"fmt"
	"time"

	"github.com/elrun/elrun/launch"
)

// groupFlags configure when a job continues after the loss of peers, whether crashed peers are
// started again, and how fast newcomers get the state. All launchers of a job should pass the same
// --quorum.
type groupFlags struct {
	MinPeers      int           `default:"1" placeholder:"N" help:"Smallest number of peers; with fewer the job waits (${default})."`
	Quorum        string        `enum:"majority,any" default:"majority" help:"Who may go on after a loss: majority (most of the members), or any (all survivors: if the network is cut, both parts train)."`
	RejoinTimeout time.Duration `default:"10m" placeholder:"D" help:"How long to wait when too few peers are left, before giving up with status 75 (${default})."`
	Restart       int           `placeholder:"N" help:"Start crashed peers of this host again, up to N times in all."`
	StartTimeout  time.Duration `default:"10m" placeholder:"D" help:"How long the peers of this elrun wait for those that have not called launch.Init, before they begin without them (${default})."`
	StateRate     byteRate      `placeholder:"RATE" help:"Highest rate at which each of these peers sends the state of the job to newcomers, as in 10MB/s (default: no limit)."`
}

// check returns an error for a flag with an invalid value.
func (g *groupFlags) check() error {
	switch {
	case g.MinPeers < 1:
		return fmt.Errorf("--min-peers %d: want at least one peer", g.MinPeers)
	case g.Restart < 0:
		return fmt.Errorf("--restart %d: want none or more", g.Restart)
	case g.RejoinTimeout <= 0:
		return fmt.Errorf("--rejoin-timeout %v: want more than 0", g.RejoinTimeout)
	case g.StartTimeout <= 0:
		return fmt.Errorf("--start-timeout %v: want more than 0", g.StartTimeout)
	}
	return nil
}

// membership returns the options of the group of a job.
func (g *groupFlags) membership() launch.Membership {
	return launch.Membership{MinPeers: g.MinPeers, Quorum: g.Quorum, RejoinTimeout: g.RejoinTimeout,
		Restart: g.Restart, StartTimeout: g.StartTimeout, StateRate: int(g.StateRate)}
}
