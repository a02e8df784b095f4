// Package member decides who is in the group: a pure state machine that each peer
// runs, and from which all get the same chain of views. It has no clock, network,
// goroutine or randomness; one goroutine owns a Machine and drives it:
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
// A view has members in rank order, of which the first Voters vote. The view after it
// is decided by single-decree Paxos among them; the value is a Change: who is lost, who
// leaves, who joins. Apply makes the next view from the view and the change, so equal
// changes make equal views, with equal hashes over all that came before.
//
//	Suspect, Dead, Admit, Leave
//	   |
//	   |  Tell: to the first voter that can be reached
//	   v
//	Prepare ---> all members;  Promise: what was accepted, and a report
//	   |         (waits for all that are to stay, then for enough)
//	   v
//	Accept  ---> all voters;   Accepted
//	   |
//	   v
//	Chain   ---> all members, old and new;  Status acknowledges
//
// The first voter in rank order that can be reached proposes. If nothing comes of it
// the next in line tries, after Patience ticks per place; who meets a higher ballot
// backs off for a time that doubles and is jittered by ID and round. A change costs at
// most 6 messages per member when none is lost, and two round trips until it is known.
//
// # The ledger
//
// A view also says who may join: grants, each with the uses that it has and had, and the IDs
// of those who were kicked, who are barred for good (ledger.go). Members make and revoke
// grants and kick peers by a Change, as all else; Apply counts the uses of those who join,
// and refuses one too many, so that no proposer can let in more. A view for the ledger
// alone (reason ForGrant) has the same members.
//
// # Who is believed
//
// Every message has an author whose ID the network has authenticated. That makes no member
// of it: whoever holds a ticket can send messages. The table (sender.go) says how far each
// counts. To a member all are outsiders who are not in its present view: peers that
// want to join, members of a later view, those that were put out, those of another branch.
//
//	                        member of the view   outsider
//	Status                  believed             answered
//	Ask                     believed             answered; with a Request: the caller decides
//	Tell, Prepare, Promise,
//	Reject, Accept,         believed, of the     answered
//	Accepted                present view only
//	Chain                   believed             certified
//	Fence                   refused              refused
//	Branch, Gather          believed, with what  refused
//	                        is within by author
//
// A peer that joins believes its Contacts, whom its caller named, in Status, Chain and
// Fence, and hears nobody else. One that is out answers those that are behind.
//
// Answered: the sender may be told what it lacks or be asked for its view, once a tick
// for all outsiders; nothing changes here. Certified: changes count as far as they are
// proved, from a view in the log of the receiver on. A proof is a Certificate: acceptances
// of one ballot, signed by the voters of the view before over the ballot and the hash of
// the view after. Proposers collect them; they are kept in the log and go with every Chain,
// 64 bytes per voter of a majority. Those of more than Config.Direct votes stay with the member
// that decided, but where views can be forced: members of the view before and newcomers
// believe without, and who is told by another asks in its own view (catchup.go: askWithin).
// Hashes are made from content by the receiver. Only outsiders' certificates are verified,
// and the first that is wrong ends the work.
//
// An outsider's Chain that goes another way than the log fences this member only where
// views can be forced (Config.Any, Sole), if each step from the common view is proved, the
// sender is in the last view, and the Key, but for its stable steps, follows from that
// view. Where nobody forces views there is one history, and no branch to meet.
//
// What is not promised: a member of the present view is believed, so one that lies can end
// the job. Half of the voters of a view that were put out together could continue it for
// those who are still in that view; where views can be forced, each member that was put
// out can, as it may really be the only survivor. A member that is behind by more than the
// log, and of whose view no member is left, is told by nobody: it misses a quorum for good.
// Branches that have each gone further than the log do not find together.
//
// # Invariants
//
// The numbers are those of the design. Tests name them where they check them.
//
// I1, one epoch, one membership. A view follows its parent only by a decided change.
// Two quorums of one view share a voter that was alive for both (quorum.go), a voter
// accepts nothing below its promise (acceptor.go), and a proposer takes over the change
// of the highest ballot that its promises name (proposer.go: promised, choose). So all
// changes decided for one view are equal. Views that were forced (see I10) are marked,
// get an epoch that a decided sibling cannot have, and end in one branch (rival.go).
//
// I2, a process start has a new ID. What a voter promised is only in its memory, which
// is sound because an ID never comes back: Apply refuses an ID that is in the view, and
// history.fresh refuses one that was in since the epoch at which it first heard of the
// job. Making IDs that differ is the caller's part.
//
// I3, rank is the index; survivors keep order, joiners append. View.Apply is the only
// code that makes a view, and does just this.
//
// I4, an error in a collective revokes its communicator. The caller's part; here,
// Suspect from any member reaches the proposer by Tell and Promise, so one that saw the
// error is enough. So does Renew, where a session broke and nobody is lost.
//
// I5, each member enters an epoch or revokes it. Ready.Views has every view that was
// passed, in order, also when several were learned at once. The caller enters the last
// and revokes the others. A joiner of a skipped view is told of the next one by its
// decider, as all members of the view before are.
//
// I6 and I7 are about steps and the tail, and the caller's part. What is used of them:
// a view can wait for the boundary at which all leave the session before.
//
// I8, leaving is an agreed change. Leave makes a member ask to be Left; it goes on
// voting until it learns of the view without it, and afterwards answers those that
// are behind. Settled says when nobody waits for news from it. If all want to leave
// the first stays until it is alone (next.go: holdBack).
//
// I9, a member that hears of a later view asks for it. Every message carries its
// sender's epoch and view. One that is behind is sent the changes it lacks, whatever it
// said; one whose view is unknown is asked (catchup.go: receiveOther). So that
// everybody is heard of, each sends one Status every Beat ticks, to one member after
// the other, in a large group to those at some distances on the ring of ranks.
//
// I10, below a majority of voters the group stops, with two exceptions (quorum.go).
//
// Certain deaths: all voters but certainly dead ones voted, and fewer than a majority
// are dead. This is as safe as a majority. Such a set S of n voters has at least n/2, so
// it meets every majority. Two such sets S and T are disjoint only if T is all of S's
// dead and S all of T's. Let S's proposer, which is in S, have counted first. T's
// proposer is in T and was alive later, but was dead by S's count: a contradiction. That
// proposers are voters themselves is needed here (proposer.go: begin). The number of
// voters is never reduced by deaths: three of five still have to vote, or else a
// change that was accepted by one that lives and two that then died could be missed.
//
// Forced: all survivors voted, and either the launcher that started every peer ever
// admitted knows that the others are dead (Sole), or the user gave up on majorities
// (Config.Any). Then a change has Forced, and its view the reason ForForced; so has one
// that a majority proposed and fewer decide, and one of members without a vote. Before a
// peer of another launcher is admitted, every member must have been told Sole{false};
// the caller's part, as it admits. Where branches meet, the lesser Key is Fenced.
//
// I11, a joiner enters without a vote; the next agreed view makes it a voter. Apply
// counts the survivors as voters. When all joiners have shown themselves in the view
// for Promote ticks, a change of nobody is proposed that gives them the vote (reason
// ForVote); its view has the same members, so a caller may keep its session.
//
// I12, a promise that arrives after Accept went out changes nothing; a ballot is never
// used twice. Promises count in stage preparing and for the ballot under way only
// (proposer.go: promised). Ballots are numbered by a counter of the proposer's own,
// which also follows what it hears, and carry its rank (begin).
//
// I13, a new view is a set of members that can all reach each other. Each report says
// whom its sender cannot reach. Of those that answered the Prepare or that nobody misses, a
// largest set without such a pair stays; ties go to low ranks (next.go: kept, cuts.go).
package member
