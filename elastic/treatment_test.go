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
func worst(k controlKind) [][]byte {
	switch k {
	case controlMember:
		return [][]byte{encodeMachineMessage(member.Message{Kind: member.Tell, Report: &member.Report{Seq: 9, Leaving: true}}), {byte(k)}}
	case controlHeartbeat:
		return [][]byte{heartbeat{Entered: 9, Step: 9, Reply: true, Deaf: true, Leaving: true, Ended: true, First: [32]byte{1}}.append(nil)}
	case controlProbe, controlProbeReply:
		return [][]byte{probeMessage{About: "001"}.append(k, nil), probeMessage{About: "001", Heard: true}.append(k, nil)}
	case controlStepDown:
		return [][]byte{stepDown{3, 3}.append(nil)}
	case controlReverseDial:
		return [][]byte{reverseDial{ID: "new", Info: "{}"}.append(nil)}
	}
	return [][]byte{{byte(k)}, {byte(k), 1, 2, 3}}
}

// effects describes all fields of a driver that messages may change.
func (d *driver) effects() string {
	s := fmt.Sprint(d.launcher.on, d.launcher.over, d.launcher.settled, d.launcher.joining, d.report.get().Stalled, d.status.current, d.admitter.newcomers.approved, d.admitter.dialer.running, len(d.roster.peers))
	for _, m := range d.roster.view.Members {
		if p := d.roster.peerOf(m.ID); p != nil {
			s += fmt.Sprint(m.ID, p.heartbeat, p.suspected, p.silence.last, p.askers, p.helped)
		}
	}
	return s
}

// No message of an outsider changes the driver, whichever outsider it is: a holder of a ticket, an
// admitted newcomer in no view yet, a member that was put out, or a member of another branch. The
// table has a row for each kind.
func TestControlOfOutsiders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind := controlKind(1); kind <= controlEnd; kind++ {
			_, ok := treatmentOf(kind, outsider)
			if known := kind < controlEnd; ok != known {
				t.Errorf("kind %d has a row: %v", kind, ok)
			}
			for _, from := range []ID{"ticket", "let in", "put out", "of a branch"} {
				d := testDriver(t, 3, 0)
				d.launcher.on = true
				d.launcher.joining = &foreignJoin{noted: make(map[ID]bool)}
				d.admitter.newcomers.approved = map[ID]approval{"let in": {until: time.Now().Add(minLease)}}
				d.status.current.former = []Member{{ID: "put out"}}
				before := d.effects()
				for _, b := range slices.Concat(worst(kind), [][]byte{nil}) {
					d.happened(PeerEvent{Peer: from, Kind: PeerMessage, Data: b})
				}
				if after := d.effects(); after != before {
					t.Errorf("kind %d of one %s changes\n%s to\n%s", kind, from, before, after)
				}
			}
		}
	})
}

// The same messages take effect if a member sends them, so TestControlOfOutsiders is not vacuous.
func TestControlOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []controlKind{controlHeartbeat, controlStepDown, controlForeignJoin, controlForeignJoinAck, controlReverseDial} {
			d := testDriver(t, 3, 0)
			d.launcher.on = true
			d.launcher.joining = &foreignJoin{noted: make(map[ID]bool)}
			before := d.effects()
			d.receive("001", worst(kind)[0])
			if d.effects() == before {
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
	for range 10 * outsiderMessages {
		if b.spend("flood") {
			read++
		}
	}
	if read != outsiderMessages {
		t.Errorf("%d messages of one are read", read)
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
