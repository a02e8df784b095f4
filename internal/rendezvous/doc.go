// Package rendezvous lets launchers on many hosts find each other by a DNS name and agree on the
// launcher that starts the job. All launchers are started with the same command line, and no
// launcher is a server.
//
//	p, err := rendezvous.Listen(ctx, rendezvous.Config{Name: name, Key: key, ...})
//	found, err := p.Seek(ctx)
//	// found.Ticket == "": start the job; otherwise join by the ticket
//	p.Serve(ticket)                // gives tickets to later launchers
//	p.Finish(ctx)                  // the job has finished
//
// A launcher that looks for the job repeatedly asks all addresses of the name:
//
//	seeking --a launcher has the job--> gets a ticket from it, and joins
//	   |  \--a launcher knows the job's end--> has nothing to do
//	   +--nobody has it, and all grant the claim--> starts the job
//
// # Never two jobs
//
// The DNS may omit addresses, or return addresses of launchers that have ended. So a launcher
// starts the job only if
//
//   - each address of the name answers or refuses the connection. A launcher that has the job
//     listens, so nobody has the job at an address that refuses,
//   - it has the lowest name of all launchers that answer,
//   - enough launchers are there (Config.Need), or too few have been there for Config.Patience,
//   - and each of them grants its claim. A launcher that has granted a claim grants no other
//     claim, and makes none, until the lease of the grant has expired and it has learned, by asking
//     the claimant again, that the claimant has not started the job.
//
// If Need is more than half of the launchers, any two sets of Need launchers have a member in
// common (quorum intersection). This member does not grant two claims, so two launchers cannot
// both start the job. An address that does not answer at all may be a host behind a network
// partition: then nobody starts the job until the DNS drops the address.
//
// # Authentication
//
// All launchers have the same secret key in a file, and derive a pair of Ed25519 keys from it.
// They connect by TLS 1.3, and both sides prove possession of this pair. So a stranger without the
// key learns nothing and cannot ask anything, and tickets are encrypted with forward secrecy.
package rendezvous
