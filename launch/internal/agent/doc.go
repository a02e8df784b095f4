// Package agent runs on another host for a launcher: it starts the peers there that the launcher
// orders, and passes on their messages, output and ends. It runs in the process "elrun agent", which
// the launcher starts through ssh or srun.
//
// Serve is the whole agent. Its messages are those of package wire.
package agent
