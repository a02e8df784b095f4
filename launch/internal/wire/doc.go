// Package wire has the messages between a launcher, its peers, its agents on other hosts and the
// commands, with their bounds. Every process of a job imports it, and nothing of it belongs to one.
//
//	Message   launcher - peer, over a Pipe (a pair of sockets), and launcher - agent, over ssh or srun
//	Request,  command - peer or launcher, over a control socket
//	  Reply
//	Environment, launcher - peer: variables of the environment
//
// All but the environment are lines of JSON, which a Reader bounds.
//
// Who reads a message checks it first (Decode...), because any process may have sent it. An Outbox holds
// the messages to a reader that may be slow.
package wire
