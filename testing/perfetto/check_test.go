package perfetto

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/trace"
)

// packets returns the packets of a trace of two views and steps of a peer, each with its tag and length.
func packets(t *testing.T) (list [][]byte) {
	t.Helper()
	var b bytes.Buffer
	w := trace.New(&b, trace.Options{})
	for n := range int64(2) {
		w.Add(event.Event{Time: time.Unix(1_799_999_999+n, 0), Peer: "a", Epoch: uint64(n + 1), Body: event.View{Members: []string{"a"}, Reason: "start"}})
		began := time.Unix(1_800_000_000+n, 0)
		w.Add(event.Event{Time: began.Add(time.Second), Peer: "a", Epoch: 1, Step: n + 1, Body: event.Step{Loss: 1, ComputeMS: 5, StepMS: 10,
			Times: event.Times{Began: began, WaitMS: 2, WaitFor: "b"}}})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for rest := b.Bytes(); len(rest) > 0; {
		_, _, size := protowire.ConsumeField(rest)
		list = append(list, rest[:size])
		rest = rest[size:]
	}
	return list
}

// Of a trace no packet can be left out but those with a value or an instant, none can be there twice but these, and
// none can be cut.
func TestRules(t *testing.T) {
	list := packets(t)
	if _, err := Read(slices.Concat(list...)); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, i int, trace []byte) {
		if _, err := Read(trace); err == nil {
			t.Errorf("packet %d of %d, %s: no rule is violated", i, len(list), what)
		}
	}
	for i, p := range list {
		m, err := parse("trace", p, fields{1: isBytes})
		if err != nil {
			t.Fatal(err)
		}
		if m, err = parse("packet", m.body(1), packetFields()); err != nil {
			t.Fatal(err)
		}
		e, err := parse("event", m.body(11), eventFields())
		if err != nil {
			t.Fatal(err)
		}
		if kind := e.uint(9); i == 0 || m.has(60) && i != 1 || kind == 1 || kind == 2 {
			refused("left out", i, slices.Concat(slices.Delete(slices.Clone(list), i, i+1)...))
		}
		if kind := e.uint(9); kind != 3 && kind != 4 || m.has(12) {
			refused("twice", i, slices.Concat(slices.Insert(slices.Clone(list), i, p)...))
		}
		cut := slices.Clone(list)
		cut[i] = p[:len(p)-1]
		refused("cut", i, slices.Concat(cut...))
	}
	refused("which has no packets", 0, nil)
	// An instant on the track of the process "job" has a name that is not defined.
	var e, p []byte
	for _, f := range []struct{ number, value uint64 }{{3, 1}, {9, 3}, {10, 99}, {11, 1}} {
		e = protowire.AppendVarint(protowire.AppendTag(e, protowire.Number(f.number), isNumber), f.value)
	}
	for _, f := range []struct{ number, value uint64 }{{8, 1 << 61}, {10, 2}, {13, 2}} {
		p = protowire.AppendVarint(protowire.AppendTag(p, protowire.Number(f.number), isNumber), f.value)
	}
	p = protowire.AppendBytes(protowire.AppendTag(p, 11, isBytes), e)
	refused("with a name that is not defined", len(list), protowire.AppendBytes(protowire.AppendTag(slices.Concat(list...), 1, isBytes), p))
}

// Times that go back on a track are found.
func TestOrderOfTimes(t *testing.T) {
	list := packets(t)
	slices.Reverse(list[len(list)-2:]) // the end of the last step and a value after it stay in order on their tracks
	late := slices.Concat(list...)
	late = append(late, list[4]...)
	if _, err := Read(late); err == nil {
		t.Error("an event of the begin is at the end")
	}
}
