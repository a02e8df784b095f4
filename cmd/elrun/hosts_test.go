package main

import (
	"strings"
	"testing"
)

// An empty list of hosts, for example from an unset variable, is an error. It does not start the job on this host.
func TestEmptyHosts(t *testing.T) {
	empty := ""
	for want, f := range map[string]sshFlags{"want a name": {Hosts: &empty}, "hostfile": {Hostfile: &empty}, "in one way": {Hosts: &empty, Hostfile: &empty}} {
		if hosts, err := f.hosts(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hosts %v, error %v, want %q", hosts, err, want)
		}
	}
	if hosts, err := (&sshFlags{}).hosts(); hosts != nil || err != nil {
		t.Errorf("hosts %v, error %v where none are named", hosts, err)
	}
}
