package elastic

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic/member"
)

// worst returns messages of a kind that would do harm if they took effect when an outsider sends
// them.
func worst(k letterKind) [][]byte {
	switch k {
	case letterMember:
		return [][]byte{memberLetter(member.Message{Kind: member.Tell, Report: &member.Report{Seq: 9, Leaving: true}}), {byte(k)}}
	case letterBeat:
		return [][]byte{beat{Entered: 9, Step: 9, Reply: true, Deaf: true, Leaving: true, Ended: true, First: [32]byte{1}}.append(nil)}
	case letterProbe, letterProbed:
		return [][]byte{probing{About: "001"}.append(k, nil), probing{About: "001", Heard: true}.append(k, nil)}
	case letterYield:
		return [][]byte{yield{3}.append(nil)}
	case letterCall:
		return [][]byte{calling{ID: "new", Info: "{}"}.append(nil)}
	}
	return [][]byte{{byte(k)}, {byte(k), 1, 2, 3}}
}

// effects describes all fields of a keeper that messages may change.
func (k *keeper) effects() string {
	s := fmt.Sprint(k.sole, k.foreign, k.stalled, k.standing, k.approved, k.calls, len(k.peers))
	for _, m := range k.view.Members {
		if p := k.peerOf(m.ID); p != nil {
			s += fmt.Sprint(m.ID, p.beat, p.suspected, p.silence.last, p.askers, p.helped)
		}
	}
	return s
}

// No message of an outsider changes anything, whichever outsider it is: a holder of a ticket, an
// admitted newcomer in no view yet, a member that was put out, or a member of another branch. The
// table has a row for each kind.
func TestLettersOfOutsiders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind := letterKind(1); kind <= lettersEnd; kind++ {
			_, ok := treatmentOf(kind, outsider)
			if known := kind < lettersEnd; ok != known {
				t.Errorf("kind %d has a row: %v", kind, ok)
			}
			for _, from := range []ID{"ticket", "let in", "put out", "of a branch"} {
				k := testKeeper(t, 3, 0)
				k.sole.on = true
				k.foreign = &foreign{noted: make(map[ID]bool)}
				k.approved = map[ID]approval{"let in": {at: time.Now()}}
				k.standing.former = []Member{{ID: "put out"}}
				before := k.effects()
				for _, b := range slices.Concat(worst(kind), [][]byte{nil}) {
					k.happened(PeerEvent{Peer: from, Kind: PeerMessage, Data: b})
				}
				if after := k.effects(); after != before {
					t.Errorf("kind %d of one %s changes\n%s to\n%s", kind, from, before, after)
				}
			}
		}
	})
}

// The same messages take effect if a member sends them, so the test above is not vacuous.
func TestLettersOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []letterKind{letterBeat, letterYield, letterForeign, letterForeignAck, letterCall} {
			k := testKeeper(t, 3, 0)
			k.sole.on = true
			k.foreign = &foreign{noted: make(map[ID]bool)}
			before := k.effects()
			k.letter("001", worst(kind)[0])
			if k.effects() == before {
				t.Errorf("kind %d of a member changes nothing", kind)
			}
		}
	})
}

// A flood of messages from one outsider does not affect the messages of other outsiders and of
// members. Memory for outsiders is bounded.
func TestBudgetOfOutsiders(t *testing.T) {
	var b budget
	read := 0
	for range 10 * outsiderLetters {
		if b.spend("flood") {
			read++
		}
	}
	if read != outsiderLetters {
		t.Errorf("%d letters of one are read", read)
	}
	for i := range 10 * maxOutsiders {
		b.spend(ID(fmt.Sprint(i)))
	}
	if len(b) > maxOutsiders+1 {
		t.Errorf("%d outsiders are remembered", len(b))
	}
	clear(b)
	if !b.spend("flood") {
		t.Error("the next period is not paid for")
	}
}
