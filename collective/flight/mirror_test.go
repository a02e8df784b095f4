package flight

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
)

// What is recovered of a ring is what the ring tells, without waits, the texts of errors, and calls that were overwritten.
func TestMirrorTwin(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 5))
		start := time.Unix(1000, 0)
		ring, memory := New(start), make([]byte, MirrorSize)
		ring.Mirror(memory)
		r := ring.Session(4, 1, []string{"a", "b", "c"})
		r.Group(1<<40, []int{0, 2})
		now := time.Duration(0)
		for range random.IntN(3000) {
			now += time.Millisecond
			call := transport.Call{Kind: transport.KindAllReduce, Type: dtype.F32, Root: -1, Count: random.Uint64N(1000), Segment: 7}
			seq := random.Uint32() &^ pointBit
			if random.IntN(3) == 0 {
				call.Kind, seq = transport.KindPoint, seq|pointBit
			}
			n := r.Begin(&Begun{Envelope: &transport.Envelope{Comm: random.Uint64N(2) << 40, Seq: seq, Call: call}, Purpose: "bucket 1 of 7", Peer: random.IntN(3) - 1,
				Sends: random.IntN(2) == 0, Background: random.IntN(2) == 0, At: now})
			r.Wait(n, Wait{For: -1})
			switch random.IntN(4) {
			case 0:
				r.End(n-random.Uint64N(min(n, 2*Calls)), now, nil)
			case 1:
				r.End(n, now, errors.New(lostError))
			}
		}
		ended := start.Add(now)
		want := ring.Record(ended)
		want.Ended, want.Total = true, uint64(0)
		for len(want.Calls) > 0 && want.Calls[0].Number+Calls <= ring.last {
			want.Calls = want.Calls[1:] // overwritten
		}
		for i := range want.Calls {
			c := &want.Calls[i]
			c.Failure, c.Blames, want.Total = "", nil, max(want.Total, c.Number)
		}
		got, err := Recover(memory, ended)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, %v: got\n%+v\nwant\n%+v", seed, err, got, want)
		}
	}
}

// Sessions that do not fit are left out, the oldest first.
func TestMirrorSessions(t *testing.T) {
	ring, memory := New(time.Unix(1000, 0)), make([]byte, MirrorSize)
	ring.Mirror(memory[:100])
	ring.Mirror(memory)
	for epoch := range uint64(4) {
		members := make([]string, 1000)
		for i := range members {
			members[i] = "B7C22n75"
		}
		ring.Session(epoch, 3, members)
	}
	got, err := Recover(memory, time.Unix(1001, 0))
	if err != nil || len(got.Sessions) != 2 || got.Sessions[1].Epoch != 3 || len(got.Sessions[1].Members) != 1000 {
		t.Errorf("%v: %d sessions", err, len(got.Sessions))
	}
}

// A call that was being written when the process died is left out, and other memory is refused.
func TestRecoverTorn(t *testing.T) {
	ring, memory := New(time.Unix(1000, 0)), make([]byte, MirrorSize)
	if _, err := Recover(memory, time.Unix(1001, 0)); err == nil {
		t.Error("no error for memory of zeros")
	}
	ring.Mirror(memory)
	r := ring.Session(4, 0, []string{"a"})
	for range 3 {
		r.Begin(&Begun{Envelope: &transport.Envelope{Seq: 1, Call: transport.Call{Kind: transport.KindBarrier, Root: -1}}, Peer: -1})
	}
	slot(memory, 2)[0]++
	slot(memory, 3)[checkAt]++
	got, err := Recover(memory, time.Unix(1001, 0))
	if err != nil || len(got.Calls) != 1 || got.Calls[0].Number != 1 {
		t.Errorf("%v: %+v", err, got.Calls)
	}
	if _, err := Recover(memory[1:], time.Unix(1001, 0)); err == nil {
		t.Error("no error for a part of the memory")
	}
}

// Memory of any content gives a record that can be decoded, or an error.
func FuzzRecover(f *testing.F) {
	f.Add(uint64(1), []byte(`[{"epoch":1,"rank":0,"members":["a"]}]`))
	f.Fuzz(func(t *testing.T, seed uint64, sessions []byte) {
		memory := make([]byte, MirrorSize)
		New(time.Unix(1000, 0)).Mirror(memory)
		memory[16] = byte(copy(memory[mirrorStart:mirrorStart+255], sessions))
		random := rand.New(rand.NewPCG(seed, 1))
		for i := range uint64(Calls) {
			b := slot(memory, i)
			for k := range b {
				b[k] = byte(random.Uint32())
			}
			b[callAt], b[callAt+1] = byte(random.IntN(20)), byte(random.IntN(12))
			copy(b[:8], []byte{byte(i), byte(i >> 8), 0, 0, 0, 0, 0, 0})
			copy(b[checkAt:], b[:8])
		}
		r, err := Recover(memory, time.Unix(2000, 0))
		if err == nil {
			_ = Judge(Job{}, []Record{r})
		}
	})
}

// The record of a peer that has ended counts where calls differ, and says what it did; the others wait for it, whether it has begun
// their call or not.
func TestJudgeEnded(t *testing.T) {
	dead := knows(Peer{ID: "id1", Index: 1, End: "killed by signal 9"})
	for name, c := range map[string]struct {
		s     *story
		cause string
		want  string
	}{
		"in the call":     {newStory(3).waits(reduce(1), 0, 1, 2), Lost, "has ended: killed by signal 9 in call 1 (allreduce float32[8] sum); rank 0 waits"},
		"before the call": {newStory(3).call(reduce(1), 0, 1, 2).waits(reduce(2), 0, 2), Lost, "after call 1 (allreduce"},
		"another call":    {newStory(3).call(Call{Seq: 1, Kind: "barrier", What: "barrier"}, 1).waits(reduce(1), 0, 2), OtherCall, "makes another call"},
		"nobody waits":    {newStory(3).call(reduce(1), 0, 1, 2), Lost, "killed by signal 9 after call 1"},
	} {
		c.s.records[1].Ended = true
		if v := Judge(dead, c.s.records); v.Cause != c.cause || v.Peer != "id1" || !strings.Contains(v.Text, c.want) {
			t.Errorf("%s: got %+v, want %s: %s", name, v, c.cause, c.want)
		}
	}
}
