// Package rendezvous lets launchers on many hosts find each other by a DNS name, and agree
// which of them starts the job. All get the same command line: nobody is a server.
//
//	p, err := rendezvous.Listen(ctx, rendezvous.Config{Name: name, Key: key, ...})
//	found, err := p.Seek(ctx)
//	// found.Ticket == "": start the job; otherwise join by the ticket
//	p.Serve(ticket)                // hands tickets to those who come later
//	p.Finish(ctx)                  // the job has ended well
//
// A launcher that looks for the job asks all addresses of the name, once in a while:
//
//	seeking --somebody has the job--> gets a ticket from it, and joins
//	   |  \--somebody has seen the job's end--> has nothing to do
//	   +--nobody has it, and all let this one start--> starts
//
// # Never two jobs
//
// The DNS may leave out addresses, or name some that are gone. So a launcher starts the job
// only if
//
//   - each address of the name answers, or refuses the connection: an elrun that has the job
//     listens, so nobody has it there,
//   - it is the lowest by name of those that answer,
//   - enough are there (Config.Need), or that many have not come for Config.Patience,
//   - and each of them grants its claim. Who has granted a claim grants no other one, and
//     makes none, until it has asked the claimant again, after the claim's time, and found that
//     it has not started the job.
//
// Two launchers that both have Need grants, of fewer than twice as many, have one from the
// same launcher, which is impossible. An address that does not answer at all may be a host
// that was cut off: then nobody starts the job until the DNS drops it.
//
// # Who may take part
//
// A key, which all launchers have in a file, becomes a pair of Ed25519 keys. Launchers talk
// over TLS 1.3 and both sides show that they hold this pair. So who has no key learns
// nothing and is not listened to, and tickets are encrypted with forward secrecy.
package rendezvous
