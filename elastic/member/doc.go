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
//		send(r.Messages)        // any may be lost, delayed, repeated or overtaken
//		enter(r.Views)          // the last; sessions of earlier ones are revoked
//		report(r.Notices)
//	}
//
// # How the next view is decided
//
// A view lists its members in rank order; the first Voters members vote. They decide the next view
// by single-decree Paxos (Lamport, Paxos Made Simple, 2001). The value is a Change: the members
// that are lost, leave and join. Apply computes the next view from the view and the change. So
// equal changes give equal views, with equal hashes over the whole lineage.
//
//	Suspect, Dead, Admit, Leave
//	   |
//	   |  Tell: to the first voter that can be reached
//	   v
//	Prepare ---> all members;  Promise: the change accepted before, and a report
//	   |         (waits for all members that are to stay, then for enough)
//	   v
//	Accept  ---> all voters;   Accepted
//	   |
//	   v
//	Chain   ---> all members, old and new;  Status acknowledges
//
// The first voter in rank order that can be reached proposes. If it does not succeed the next in
// line tries, after Patience ticks per place. A proposer that meets a higher ballot backs off for a
// time that doubles, with a jitter by ID and round. Without losses a change costs at most 6
// messages per member, and two round trips until the decision.
//
// # Parts
//
// A Machine consists of parts with their own state, which can be tested alone. The Machine itself
// passes messages on, and moves from view to view:
//
//	membership       the view, this member's rank in it, the log, the clock, the output; all share it
//	localState       this member's knowledge and requests; reporter sends them to the proposer
//	peerReports      the knowledge and requests of the others
//	quorumMonitor    who decides, and whether enough of them can be reached
//	acceptor,        the two roles of Paxos; the proposer collects facts, and next makes a change of
//	proposer         them, with the help of partitionGraph
//	dissemination    tells a decided view until all have acknowledged it
//	relay            multicast along trees, in large groups
//	gossip, catchUp  let members that lag behind find out, and send them the views that they lack
//	joiner           a newcomer's way in
//	branchConflict   which of two forced branches ends
//
// # Grants
//
// A view also contains the rights to join: grants, each with its allowed and counted uses, and the
// IDs that were kicked, which are barred for good (grants.go). Members issue and revoke grants and
// kick peers by a Change, like all else. Apply counts the uses and refuses a change with one use
// too many, so no proposer can admit more peers than a grant allows. A view for grants alone
// (reason ForGrant) has the same members.
//
// # Who is believed
//
// The network has authenticated the ID of each message's author. That does not make the author a
// member: any holder of a ticket can send messages. The table (sender.go) gives the effect that a
// message may have. An outsider is a peer outside the receiver's present view: a newcomer, a member
// of a later view, a member that was put out, or a member of another branch.
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
// A newcomer believes Status, Chain and Fence of its Contacts, which its caller named, and ignores
// all other peers. A machine that is out answers members that lag behind.
//
// Answered: the message changes nothing here, but the sender may be sent the changes that it lacks,
// or be asked for its view; at most one outsider is asked in a tick. Certified: changes count as
// far as they are proved, starting from a view in the receiver's log. The proof of a change is a
// Certificate: acceptances of one ballot. Each is signed by a voter of the view before the change,
// over the ballot and the hash of the view after the change. Proposers collect certificates. They
// are kept in the log and sent with every Chain, 64 bytes per voter of a majority. Certificates of
// more than Config.Direct votes stay with the member that decided, except where views can be
// forced. Members of the view before and newcomers believe changes without certificates, and a
// member that hears of a change from another peer asks in its own view (catchup.go: askWithin). The
// receiver computes hashes from content. Only outsiders' certificates are verified, and the first
// wrong signature ends the verification.
//
// An outsider's Chain that contradicts the log fences this member only where views can be forced
// (Config.Any, Sole), and only if each step from the common view is proved, the sender is in the
// last view, and the Key, except for its stable steps, is of that view or of an earlier one. Where
// views cannot be forced there is one history, and no branch to meet.
//
// Limits of this protection: a member of the present view is believed, so a member that lies can
// end the job. Half of the voters of a view, if they are put out together and lie, could decide
// another next view for peers that are still in that view. Where views can be forced each member
// that was put out can force one, as it may really be the only survivor. A member that lags behind
// learns that its view has ended from a member of that view, or by the proof of the next view. If
// no other member of its view is left, and either the proof is longer than Config.Direct votes, so
// that it has died with the members that decided, or the log no longer reaches back to its view,
// the member lacks a quorum for good, and so does a later view that needs its vote. Branches that
// have both gone further than the log do not reunite.
//
// # Invariants
//
// The numbers come from the design. A test names the number of the invariant that it checks.
//
// I1, one epoch, one membership. A view follows its parent only by a decided change. Two quorums of
// one view share a voter that was alive for both (quorum.go), a voter accepts nothing below its
// promise (acceptor.go), and a proposer takes over the change of the highest ballot in its promises
// (proposer.go: promised, choose). So all changes decided for one view are equal. Views that were
// forced (see I10) are marked, get an epoch that a decided sibling cannot have, and end in one
// branch (rival.go).
//
// I2, a process start has a new ID. A voter's promises are only in memory. That is sound because an
// ID never comes back: Apply refuses an ID that is in the view, and history.fresh refuses an ID
// that was in a view since the epoch at which its peer first heard of the job. The caller makes IDs
// that differ.
//
// I3, rank is the index; survivors keep their order, newcomers are appended. View.Apply is the only
// code that makes a view, and does exactly this.
//
// I4, an error in a collective revokes its communicator. This is the caller's part. Here, a
// suspicion of any member reaches the proposer by Tell and Promise, so one member that saw the
// error is enough. A request to renew the view reaches it in the same way, if a session broke and
// no member is lost.
//
// I5, each member enters an epoch or revokes it. Ready.Views has all views since the last Ready, in
// order, even if several became known at once. The caller enters the last and revokes the others. A
// newcomer of a skipped view gets the next view from the member that decided it, like all members
// of the view before.
//
// I6 and I7 concern steps and commit records, and are up to the caller. Their use here: a view can
// wait for the boundary at which all members leave the previous session.
//
// I8, leaving is an agreed change. Leave makes a member ask to be in Change.Left. The member
// continues to vote until it learns of the view without it, and afterwards answers members that lag
// behind. Settled reports when no member waits for its messages. If all members want to leave, the
// first stays until it is alone (next.go: holdBack).
//
// I9, a member that hears of a later view asks for it. Every message carries its sender's epoch and
// view. A sender that lags behind gets the changes that it lacks, whatever its message was; a
// sender with an unknown view is asked (catchup.go: answerOther). For this each member sends a
// Status every Beat ticks, to one member after another, in a large group only to the members at the
// distances 1, 2, 4, 8 and so on on the ring of ranks.
//
// I10, below a majority of voters the group stops, with two exceptions (quorum.go).
//
// Certain deaths: all voters except certainly dead ones voted, and fewer than a majority are dead.
// This is as safe as a majority. Let S be the set of the voters that voted, of n voters in all. It
// has at least n/2 members, so it meets every majority. Two such sets S and T are disjoint only if
// T is the set of the dead that S has counted, and S the set of the dead that T has counted. Let
// the proposer of S, which is in S, have counted first. The proposer of T is in T and was alive
// later, but S has counted it as dead: a contradiction. The proof needs that proposers are voters
// themselves (proposer.go: begin). Deaths never reduce the number of voters: three of five still
// have to vote. Otherwise a change accepted by one live voter and two that then died could be
// missed.
//
// Forced: all survivors voted, and either the launcher that started every peer ever admitted knows
// that the others are dead (Sole), or the user gave up on majorities (Config.Any). Then
// Change.Forced is set, and the view has the reason ForForced. The same holds for a change that a
// majority proposed and fewer members decide, and for a change that members without a vote decide.
// Before a peer of another launcher is admitted, every member must have received Sole{false}; this
// is the caller's part, as it admits. Where branches meet, the member with the lesser Key is
// Fenced.
//
// I11, a newcomer enters without a vote; the next agreed view makes it a voter. Apply counts the
// survivors as voters. When all newcomers have been present in the view for Promote ticks, an empty
// change is proposed that gives them the vote (reason ForVote). Its view has the same members, so a
// caller may keep its session.
//
// I12, a promise that arrives after Accept was sent changes nothing; a ballot is never used twice.
// Promises count only in the stage preparing and for the ballot under way (proposer.go: promised).
// A ballot consists of a round, from the proposer's own counter, and the proposer's rank. The
// counter also follows the rounds that the proposer sees (begin).
//
// I13, a new view is a set of members that can all reach each other. Each report names the members
// that its sender cannot reach. Of the members that answered the Prepare, or that no member reports
// unreachable, a largest set in which all can reach each other stays; ties go to low ranks
// (next.go: kept, partition.go).
package member
