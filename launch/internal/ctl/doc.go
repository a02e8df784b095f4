// Package ctl serves the control sockets of the peers and launchers of a host, lists them and asks
// them: the state of a job, its end, its tickets, the number of its peers. The server runs in peers,
// launchers and agents; the client in the commands, and in whatever joins a job of its own host.
//
// Serve opens a socket and answers by a Responder. A Job is the client of all sockets of a job, and
// Ask of one. A record of a job that has ended (WriteEnded) takes the place of its sockets.
package ctl
