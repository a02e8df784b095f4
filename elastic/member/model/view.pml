/*
 * The change of views of elastic/member, reduced to what its safety rests on: single
 * decree Paxos among the voters of a view, certain deaths in the place of votes (I10),
 * and a joiner that has no vote in its first view (I11). Three members, one joiner,
 * two changes one after the other.
 *
 * A message is a fact that stays: it can be received late, twice, out of order or
 * never, which covers delay, duplication and loss. Ballot b belongs to member b-1, which
 * stands for the rank in the ballots of the code.
 *
 * All messages are those of members: signatures (certificate.go) and forced changes are
 * not modelled. Tests and the simulator check them.
 *
 * What is checked, at every decision: all decisions of one view are equal. Compile with
 * one of these to see that the check bites:
 *   -DHALF       half of the voters, rounded down, are a quorum
 *   -DFORGET     a promise does not tell what was accepted
 *   -DBELOW      a change is accepted below a promise
 *   -DSHRINK     the dead do not count as voters
 *   -DREUSE      a ballot is used for a second change
 *   -DEAGER      the vote of a joiner counts in its first view
 */

#define N       4               /* members 0 to 2, joiner 3 */
#ifndef BALLOTS
#define BALLOTS 3               /* per view, 2 or 3, numbered from 1 */
#endif
#ifndef CHANGES
#define CHANGES 1               /* one after the other, 1 or 2 */
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#define BIT(m)  (1 << (m))
#define IN(m, set) (((set) >> (m)) & 1)
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1))

#ifdef REUSE
#define UNUSED(e, b) true
#else
#define UNUSED(e, b) (change[SLOT(e, b)] == 0)
#endif
#ifdef BELOW
#define ABOVE(m, e, b) true
#else
#define ABOVE(m, e, b) (b >= promised[(e) * N + m])
#endif

/* Slot of ballot b of view e; e is 0 or 1. */
#define SLOT(e, b)  ((e) * BALLOTS + (b) - 1)
#define SLOTS       (2 * BALLOTS)
#define OWNER(b)    ((b) - 1)   /* the member that may use it, and uses it once */

byte at[N] = {0, 0, 0, 3};                   /* view in which a member is: 0, 1, or 2 when done; 3: out */
bit joined;                     /* the joiner has entered */
hidden byte heard, best, k, electors, yes, gone;    /* for use within one action */
hidden byte ok;
byte alive = 15;                /* mask; deaths are certain, and known to all that live */
byte crashes;
byte members[3] = {7, 0, 0};              /* decided views, as masks; 0 if not decided */
byte voters[3] = {7, 0, 0};

byte promised[2 * N];           /* per view and member: ballot */
byte accepted[2 * N];           /* ballot, whose change is change[SLOT] */

byte promises[SLOTS];           /* mask of those that promised */
byte told[SLOTS * N];           /* accepted ballot that a promise tells */
byte change[SLOTS];             /* mask of the next view that the ballot asks for; 0: none yet */
byte votes[SLOTS];              /* mask of those that accepted */

#define KNOWS(k, e) (IN(k, alive) && at[k] > (e))
#define known(e) (KNOWS(0, e) || KNOWS(1, e) || KNOWS(2, e) || (joined == 1 && KNOWS(3, e)))

/* Whether a set of members decides for view e. */
inline quorum(e, set, ok)
{
    electors = voters[e];
    yes = (set) & electors;
    gone = electors & ~alive;
#ifdef EAGER
    yes = (set) & members[e];
#endif
#ifdef HALF
    ok = COUNT(yes) * 2 + 1 >= COUNT(electors);
#else
#ifdef SHRINK
    ok = yes != 0 && COUNT(yes) * 2 > COUNT(electors & alive);
#else
    ok = COUNT(yes) * 2 > COUNT(electors) ||
        (yes != 0 && (electors & ~yes & ~gone) == 0 && COUNT(gone) * 2 <= COUNT(electors));
#endif
#endif
}

/* A member enters the view after e, or is out. */
inline enter(m, e)
{
    at[m] = (IN(m, members[(e) + 1]) -> (e) + 1 : 3);
}

/* A voter takes a free ballot above its promise, and promises it itself. */
inline prepare(m, e, b)
{
    atomic {
        (IN(m, alive) && at[m] == e && IN(m, voters[e]) &&
            m == OWNER(b) && promises[SLOT(e, b)] == 0 && b > promised[(e) * N + m]) ->
        promise_(m, e, b);
    }
}

inline promise_(m, e, b)
{
    promised[(e) * N + m] = b;
    promises[SLOT(e, b)] = promises[SLOT(e, b)] | BIT(m);
#ifndef FORGET
    told[SLOT(e, b) * N + m] = accepted[(e) * N + m];
#endif
}

inline promise(m, e, b)
{
    atomic {
        (IN(m, alive) && at[m] == e && promises[SLOT(e, b)] != 0 && b > promised[(e) * N + m]) ->
        promise_(m, e, b);
    }
}

/* The owner has heard some of the promises, any that are enough, and chooses. */
inline choose(m, e, b)
{
    atomic {
        (m == OWNER(b) && IN(m, alive) && at[m] == e && promised[(e) * N + m] == b && UNUSED(e, b)) ->
        heard = BIT(m);
        k = 0;
        do
        :: k < N && IN(k, promises[SLOT(e, b)]) -> heard = heard | BIT(k); k++
        :: k < N -> k++
        :: k == N -> break
        od;
        quorum(e, heard, ok);
        if
        :: ok ->
            best = 0;
            k = 0;
            do
            :: k < N && IN(k, heard) && told[SLOT(e, b) * N + k] > best ->
                best = told[SLOT(e, b) * N + k]; k++
            :: k < N && !(IN(k, heard) && told[SLOT(e, b) * N + k] > best) -> k++
            :: k == N -> break
            od;
            if
            :: best > 0 -> change[SLOT(e, b)] = change[SLOT(e, best)]
            :: best == 0 ->
                /* Who stays: any that leave a voter; the joiner comes once. */
                if
                :: change[SLOT(e, b)] = members[e] & alive
                :: change[SLOT(e, b)] = members[e] & (BIT(m) | BIT((m + 1) % 3))
                :: !IN(3, members[e]) && e == 0 -> change[SLOT(e, b)] = members[e] | BIT(3)
                fi
            fi;
            accepted[(e) * N + m] = b;
            votes[SLOT(e, b)] = votes[SLOT(e, b)] | BIT(m)
        :: else -> skip
        fi
    }
}

inline accept(m, e, b)
{
    atomic {
        (IN(m, alive) && at[m] == e && change[SLOT(e, b)] != 0 && !IN(m, votes[SLOT(e, b)]) && ABOVE(m, e, b)) ->
        promised[(e) * N + m] = b;
        accepted[(e) * N + m] = b;
        votes[SLOT(e, b)] = votes[SLOT(e, b)] | BIT(m)
    }
}

inline decide(m, e, b)
{
    atomic {
        (m == OWNER(b) && IN(m, alive) && at[m] == e && change[SLOT(e, b)] != 0) ->
        quorum(e, votes[SLOT(e, b)], ok);
        if
        :: ok ->
            assert(members[(e) + 1] == 0 || members[(e) + 1] == change[SLOT(e, b)]);
            members[(e) + 1] = change[SLOT(e, b)];
            voters[(e) + 1] = change[SLOT(e, b)] & members[e];
            enter(m, e)
        :: else -> skip
        fi
    }
}

/* A member hears of a decision from one that lives and knows it. */
inline learn(m, e)
{
    atomic {
        (IN(m, alive) && at[m] == e && members[(e) + 1] != 0 && known(e)) -> enter(m, e)
    }
}

inline crash(m)
{
    atomic {
        (crashes < CRASHES && IN(m, alive)) -> alive = alive & ~BIT(m); crashes++
    }
}

/* What a member may do for one ballot. */
inline act(m, e, b)
{
    if
    :: prepare(m, e, b)
    :: promise(m, e, b)
    :: choose(m, e, b)
    :: accept(m, e, b)
    :: decide(m, e, b)
    fi
}

active [N] proctype peer()
{
end:
    do
    :: act(_pid, 0, 1)
    :: act(_pid, 0, 2)
#if BALLOTS > 2
    :: act(_pid, 0, 3)
#endif
    :: learn(_pid, 0)
#if CHANGES > 1
    :: act(_pid, 1, 1)
    :: act(_pid, 1, 2)
    :: learn(_pid, 1)
#endif
    :: (_pid == 3 && joined == 0 && IN(3, members[1]) && known(0)) -> atomic { joined = 1; at[3] = 1 }
    :: crash(_pid)
    od
}
