// Package wire has the messages between a launcher, its peers, its agents on other hosts and the
// commands, with their bounds. Every process of a job imports it, and nothing of it belongs to one.
//
//	Message   launcher - peer, over a Pipe (a pair of sockets): a line of JSON
//	Frame     launcher - agent, over ssh or srun: a line of JSON, which may wrap a Message
//	Request,  command - peer or launcher, over a control socket: a line of JSON
//	  Reply
//	Environment, launcher - peer: variables of the environment
//
// Who reads a message checks it first (Decode...), because any process may have sent it. An Outbox holds
// the messages to a reader that may be slow.
package wire
