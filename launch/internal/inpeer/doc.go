// Package inpeer runs in the processes of peers: it makes a program a member of its job.
//
// Init joins the job of the launcher that started the process. A Link is the socket to that launcher. A
// peer listens, gets the right to join (identity, admission), opens the job to other hosts (issue, open),
// and answers its control socket. Without a launcher, Init makes a group of one.
package inpeer
