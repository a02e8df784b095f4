package spec

import (
	"strings"
	"testing"
	"time"
)

func TestMembershipDefaults(t *testing.T) {
	var m Membership
	if err := m.check(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	m.defaults()
	if want := (Membership{JoinTimeout: time.Minute, MinPeers: 1, RejoinTimeout: 10 * time.Minute, StartTimeout: 10 * time.Minute}); m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
	given := Membership{JoinTimeout: 1, MinPeers: 2, Quorum: "any", RejoinTimeout: 3, Restart: 4, StartTimeout: 6, StateRate: 5}
	if m = given; m.check() != nil {
		t.Errorf("%+v: %v", m, m.check())
	}
	if m.defaults(); m != given {
		t.Errorf("%+v, want %+v", m, given)
	}
}

func TestBadMembership(t *testing.T) {
	for want, m := range map[string]Membership{
		"minimum of -1 peers":           {MinPeers: -1},
		"limit of -2 restarts":          {Restart: -2},
		"state rate of -3 bytes":        {StateRate: -3},
		"join timeout -1ns":             {JoinTimeout: -1},
		"start timeout -1ns":            {StartTimeout: -1},
		"rejoin timeout -1ns":           {RejoinTimeout: -1},
		`unknown quorum "none" (majori`: {Quorum: "none"},
	} {
		if err := m.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q in it", m, err, want)
		}
	}
}
