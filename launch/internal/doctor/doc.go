// Package doctor tests what jobs need: this host (Host), other hosts (Hosts) and a running job (Member).
// It runs in the process "elrun doctor" and in agents.
package doctor
