package lint

import "strings"

// scope is the set of places where a word must not occur.
type scope int

const (
	anywhere    scope = iota // in identifiers, names of files, comments, texts of programs and documents
	identifiers              // in identifiers and names of files, also as a part of them
	names                    // as the whole name of a package, file, type, function, method, field, constant or variable
)

// word is a word with a private meaning: elrun once used it in a sense that a reader could not find
// elsewhere.
type word struct {
	text    string // with a capital letter where another word begins, as in handBack
	where   scope
	folder  string // the word is forbidden in this folder and below; "" means all folders
	instead string
}

// vocabulary lists the forbidden words with the standard terms that replaced them. A word of
// ordinary English is only forbidden as a name, and a common one only in the folder where it had a
// private meaning. Names of local variables are free except for the words of the first two groups,
// because their meaning is visible nearby.
func vocabulary() (all []word) {
	for _, group := range []struct {
		where  scope
		folder string
		list   string // word=instead
	}{
		{anywhere, "", "habit=threshold lesson=sample plight=status outlook=forecast vigil=deathWatch bell=eventfd rope=waker " +
			"desk=requestServer lobby=unauthenticated plead=requestAdmission plea=request enrol=register untold=pending comeback=restart " +
			"housing=allocation straighten=dropRelays hurry=abort abreast=together"},
		{identifiers, "", "luck=credit season=period doubt=suspicion lend=export"},
		{names, "", "trust=unsuspect will=robustList meeting=rendezvous verdict=decision strike=unregister brief=summary patient=timeout " +
			"apart=separate said=reported beyond=outside handBack=acknowledge"},
		{names, "collective", "longest=decayingMax decayed=value pace=idleTime excused=waitingElsewhere notice=promote keep=track " +
			"turns=ticketLock draw=ticket like=withOptionsOf world=endpoint need=request " +
			"hidden=overlapped divide=setLeaders settle=initTopology"},
		{names, "internal", "past=nonTemporal Past=NonTemporal way=storeMode claiming=cached passing=nonTemporal heard=count"},
		{names, "internal/shm", "KeepVigil=DeathWatch cell=robustWord Claim=Prefetchw take=claim helps=canSteal holder=claimedBy " +
			"evenOut=rebalanceCPU census=cpuLoad place=rankArea post=slot Refs=offsets Edges=pageEdges Folding=Reducer into=reduceInto"},
		{names, "internal/netpoll", "eagerness=busyPoller luck=credit waits=miss came=hit missed=miss offered=hit Poke=Poll"},
		{names, "trainer", "room=capacity house=sharedBuffers moved=migrated early=pipelined halfway=resumed takeBack=rollback " +
			"settle=commit summer=accumulator both=exactAccumulator tail=stepReport pulse=stepTiming pulses=stepTimings Wide=LargeBatchModel " +
			"wide=largeBatch Staged=ForwardBackwardModel Ordered=GradientOrder Piecewise=PartialGradients Pausing=Yielder news=linkUpdates " +
			"margin=hysteresis tellShares=logShares speaks=isReporter shareOut=assignShares takeLess=shrinkBatch weigh=updateNoise"},
		{names, "elastic", "keeper=membershipDriver standing=status lack=quorumGap soleness=singleLauncher foreign=foreignJoin " +
			"applying=joinState keeping=holdingUpdates tell=log letter=controlMsg beat=heartbeat yield=stepDown outboxes=sendQueues " +
			"own=localState heard=peerReports telling=dissemination rivalry=branchConflict cuts=partitionGraph shown=sent"},
		{names, "transport", "sharing=shmGroup takeReady=onReady passing=transientError tell=broadcast lone=unpaired friend=memberState " +
			"turns=dialOrder better=negotiatePath callBack=reverseDial"},
		{names, "launch", "reaction=events changes=membershipLog"},
	} {
		for _, pair := range strings.Fields(group.list) {
			text, instead, _ := strings.Cut(pair, "=")
			all = append(all, word{text, group.where, group.folder, instead})
		}
	}
	return all
}
