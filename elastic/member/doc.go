// Package member is the membership protocol: a pure state machine that each peer runs, and from
// which all peers get the same chain of views. It has no clock, network, goroutine or randomness.
// One goroutine owns a Machine and drives it:
//
//	m, err := member.New(cfg, first) // or NewJoiner(cfg)
//	for {
//		select {
//		case e := <-events: // a message, a suspicion, a certain death, ...
//			m.Step(e)
//		case <-ticker:
//			m.Tick()
//		}
//		r := m.Ready()
//		send(r.Messages)        // any message may be lost, delayed, repeated or reordered
//		enter(r.Views)          // enter the last view, revoke the sessions of the others
//		report(r.Notices)
//	}
//
// # How the next view is decided
//
// A view lists its members in rank order; the first Voters members vote. They decide the next view
// by single-decree Paxos (Lamport, Paxos Made Simple, 2001). The value is a Change: the members
// that are lost, that leave and that join, and the changes of grants. Apply computes the next view
// from the present view and the change. So equal changes give equal views, with equal hashes over
// the whole lineage.
//
//	Suspect, Dead, Admit, Leave
//	   |
//	   |  Tell: to the first voter that can be reached
//	   v
//	Prepare ---> all members;  Promise: the change accepted before, and a report
//	   |         (waits for a quorum, and at most Grace ticks for all live members)
//	   v
//	Accept  ---> all voters;   Accepted
//	   |
//	   v
//	Chain   ---> all members, old and new;  Status acknowledges
//
// The first voter in rank order that can be reached proposes. If this voter does not succeed, the
// following voters try in rank order, each Patience ticks after the voter before. A proposer whose
// ballot is overtaken by a higher ballot backs off, as does a member that promises another's ballot.
// The back-off time doubles with each ballot of its own that is overtaken, grows with the time for
// which ballots of others overtake each other, and has a jitter that follows from the proposer's ID
// and round. So over slow links it becomes longer than a ballot takes. If no message is lost a
// change costs at most 6 messages per member, and two round trips until the decision.
//
// # Parts
//
// A Machine consists of parts. Each part has its own state and can be tested alone. The Machine
// itself passes messages to the parts, and moves from view to view:
//
//	membership       state that all parts share: view, rank, log, clock and output
//	localState       this member's knowledge and requests; reporter sends them to the proposer
//	peerReports      the knowledge and requests of the others
//	quorumMonitor    which members decide, and whether enough of them can be reached
//	acceptor,        the two roles of Paxos; the proposer collects facts, from which the function next
//	proposer         computes a change with a partitionGraph
//	dissemination    sends a decided change, and repeats it to members that do not acknowledge it
//	relay            multicast along trees, in large groups
//	gossip           sends the Status messages that show which members lag behind
//	catchUp          sends the missing changes to members that lag behind
//	joiner           sends a newcomer's requests to join
//	branchConflict   decides which of two branches ends
//
// # Grants
//
// A view also contains grants and barred IDs (grants.go). A grant is a right to join, with the
// number of uses that it allows and the number of uses so far. A barred ID was kicked and is never
// admitted again. Members issue grants, revoke grants and kick peers by a Change. Apply counts the
// uses and refuses a change with one use too many, so no proposer can admit more peers than a grant
// allows. If a change only issues or revokes grants (reason ForGrant), the next view has the same
// members.
//
// # Who is believed
//
// The network has authenticated the ID of each message's author. An authenticated author need not
// be a member: any holder of a ticket can send messages. The table (receive.go) gives the effect
// that a message may have. An outsider is a peer outside the receiver's present view: a newcomer, a
// member of a later view, a member that was put out, or a member of another branch.
//
//	                        member of the view   outsider
//	Status                  believed             answered
//	Ask                     believed             answered; with a Request: the caller decides
//	Tell, Prepare, Promise,
//	Reject, Accept,         believed, of the     answered
//	Accepted                present view only
//	Chain                   believed             certified
//	Fence                   refused              refused
//	Branch, Gather          believed; the inner  refused
//	                        message by author
//
// A newcomer believes Status, Chain and Fence messages of its Contacts, which its caller named, and
// ignores all other peers. A machine that is out of the group answers members that lag behind.
//
// Answered: the message changes nothing at the receiver. The receiver may send the changes that the
// sender lacks, or ask the sender for its view; it asks at most one outsider in a tick. Certified:
// if the Chain begins at a view in the receiver's log, the receiver applies the changes after that
// view, up to the first change without a valid proof. The proof of a change is a Certificate:
// acceptances of one ballot. Each acceptance is signed by a voter of the view before the change,
// over the ballot and the hash of the view after the change. The proposer collects the acceptances.
// Certificates are kept in the log and sent with every Chain, 64 bytes per vote. A certificate of
// more than Config.Direct votes is not sent, but stays with the member that decided the change,
// except where views can be forced.
// Members of the view before and newcomers believe changes without certificates. A member that
// receives an unproven change from an outsider asks a member of its own view (catchup.go:
// askWithin). The receiver computes hashes from content. Only outsiders' certificates are verified,
// and the first wrong signature ends the verification.
//
// An outsider's Chain that contradicts the log fences this member only if all of the following
// conditions hold. Views can be forced in the group (Config.Any, Sole). Each change after the last
// common view is proved. The sender is in the last view of the Chain. The sender's Key beats this
// member's Key and, except for its number of stable steps, belongs to that last view or to an
// earlier view of the Chain. Where views cannot be forced there is only one history, so no two
// branches exist.
//
// Limits of this protection: a member of the present view is believed, so a member that lies can
// end the job. Half of the voters of a view, if they are put out together and lie, could decide
// another next view for peers that are still in that view. Where views can be forced, a member that
// was put out can force a view, because that member may be the only survivor. A member that lags
// behind leaves its view when it receives the change from another member of that view, or from any
// peer with the proof. Neither is possible if no other member of its view is left and the proof is
// not available: the proof has more than Config.Direct votes and was lost with the members that
// decided, or no log reaches back to its view. Such a member lacks a quorum for good, and so does
// each later view that needs the vote of such a member. Two branches do not reunite if the log of
// one of them no longer reaches back to their last common view.
//
// # Invariants
//
// Comments in this package refer to an invariant by its number. A test names the number of the
// invariant that it checks.
//
// I1, one epoch, one membership. A view follows its parent only by a decided change. Any two
// quorums of one view share a voter that voted in both (quorum.go), a voter accepts nothing below
// its promise (acceptor.go), and a proposer takes over the accepted change of the highest ballot in
// its promises (proposer.go: promised, choose). So all changes decided for one view are equal.
// Views that were forced (see I10) are marked, and get an epoch that a sibling decided by a quorum
// cannot have. When two branches find each other, one of the branches ends (rival.go).
//
// I2, a process start has a new ID. A voter's promises are only in memory. This is sound because a
// process that has lost its memory cannot return under its ID: Apply refuses an ID that is in the
// view, and history.fresh refuses an ID that was in a view since Request.At, the first epoch that
// the peer received. The caller must give each process start a different ID.
//
// I3, a rank is the index in the view; survivors keep their order, newcomers are appended.
// View.Apply computes every view after the first, and does exactly this.
//
// I4, an error in a collective revokes its communicator. The caller does this. In this package, a
// suspicion that any member has reaches the proposer in a Tell or a Promise, so it is enough if one
// member saw the error. If a session broke and no member is lost, a request to renew the view
// reaches the proposer in the same way.
//
// I5, each member enters the session of an epoch or revokes this session. Ready.Views has all views
// since the last Ready, in order, even if several became known at once. The caller enters the last
// view and revokes the sessions of the others. A newcomer that joined with a skipped view receives
// the next view from the member that decided the next view, as all members of the skipped view do.
//
// I6 and I7 concern steps and commit records. The caller keeps them; no code in this package
// depends on them.
//
// I8, leaving is an agreed change. Leave makes a member ask to be in Change.Left. The member
// continues to vote until it receives the view without itself, and afterwards answers members that
// lag behind. Settled reports when no member waits for the messages of this member any longer: a
// member that is out, also one that was put out, runs until then. If all members want to leave, the
// first of them stays until it is the only member (duechange.go: holdBack).
//
// I9, a member that receives a message of a later view asks for that view. Every message carries
// its sender's epoch and view. The receiver sends the missing changes to a sender that lags behind,
// whatever the kind of the message, and asks a sender whose view is unknown (catchup.go:
// answerOther). So that members that lag behind are found, each member sends a Status every Beat
// ticks to one member after another. In a large group it sends them only to the members at the
// distances 1, 2, 4, 8 and so on, to both sides, on the ring of ranks.
//
// I10, below a majority of voters the group stops, with two exceptions (quorum.go).
//
// Certain deaths: all voters that are not certainly dead voted, and fewer than a majority are dead.
// This is as safe as a majority. Let S be the set of the voters that voted, of n voters in all. S
// has at least n/2 members, so S and every majority have a voter in common. Two such sets S and T
// are disjoint only if the proposer of S has counted all members of T as dead, and the proposer of
// T all members of S. Assume that the proposer of S, which is in S, has counted first. The proposer
// of T is in T and was alive later, but was counted as dead before: a contradiction. The proof
// needs that proposers are voters themselves (proposer.go: begin). Deaths never reduce the number
// of voters: of five voters three still have to vote. Otherwise a proposer could miss a change that
// was accepted by one live voter and by two voters that died afterwards.
//
// Forced: all survivors voted, and either the launcher that started every peer ever admitted knows
// that the others are dead (Sole), or the user gave up on majorities (Config.Any). Then
// Change.Forced is set, and the view has the reason ForForced. Forced is also set for a change that
// a majority promised and that fewer members then decide, and for a change that members without a
// vote decide. Before a peer of another launcher is admitted, every member must have received
// Sole{false}; the caller ensures this, as the caller admits peers. When members of two branches
// find each other, the member with the lesser Key is fenced.
//
// I11, a newcomer enters without a vote; the next agreed view makes it a voter. Apply counts the
// survivors as voters. When all newcomers have been present in the view for Promote ticks, an empty
// change is proposed that gives them the vote (reason ForVote). The view after this change has the
// same members, so the caller may keep its session.
//
// I12, a promise that arrives after Accept was sent changes nothing; a ballot is never used twice.
// Promises count only in the stage preparing and for the ballot under way (proposer.go: promised).
// A ballot consists of a round, from the proposer's own counter, and the proposer's rank. The
// proposer also raises the counter to each higher round that it receives (begin, yield, rejected).
//
// I13, a new view is a set of members that can all reach each other. Each report names the members
// that its sender cannot reach. The candidates are the members that answered the Prepare, and the
// members that no member reports as unreachable. A largest set of candidates that can all reach
// each other stays; of several such sets, the set with the lowest ranks (duechange.go: kept,
// partition.go).
package member
