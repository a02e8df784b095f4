package run

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/wire"
)

// figuresTest is a launcher with peers a and b beside the launchers L1 and L2, each with two members.
type figuresTest struct {
	figures
	sent []wire.Message
	to   []int
	now  time.Time
}

func newFiguresTest() *figuresTest {
	f := &figuresTest{now: time.Unix(2e9, 0)}
	r := newRoster(wire.StartOrder{Launcher: "own"})
	var members []elastic.Member
	for i, id := range []elastic.ID{"a", "b"} {
		r.expect(i)
		r.hello(i, elastic.Member{ID: id})
		members = append(members, elastic.Member{ID: id, Launcher: "own"})
	}
	members = append(members, elastic.Member{ID: "c", Launcher: "L1"}, elastic.Member{ID: "d", Launcher: "L1"},
		elastic.Member{ID: "e", Launcher: "L2"}, elastic.Member{ID: "f", Launcher: "L2"})
	r.learn(wire.Known{Epoch: 1, Members: members})
	f.roster = r
	f.send = func(seat int, m wire.Message) { f.to, f.sent = append(f.to, seat), append(f.sent, m) }
	return f
}

// after lets time pass, and returns the inquiries that were made, by the member that is asked.
func (f *figuresTest) after(d time.Duration) map[elastic.ID]wire.Inquiry {
	f.sent = nil
	f.now = f.now.Add(d)
	f.tick(f.now)
	asked := make(map[elastic.ID]wire.Inquiry)
	for _, m := range f.sent {
		if m.Inquiry != nil {
			asked[m.Inquiry.Of] = *m.Inquiry
		}
	}
	return asked
}

// page returns a page with peers of a launcher.
func page(launcher string, ids ...string) []byte {
	var s timeline.Snapshot
	for _, id := range ids {
		s.Peers = append(s.Peers, timeline.Peer{ID: id, Launcher: launcher, Heard: true})
	}
	return timeline.EncodePart(s, 0)
}

// Without a watcher nothing is asked. With one each other launcher is asked once a second, by another pair of peers
// each time, and the first question waits for their answers.
func TestFigures(t *testing.T) {
	f := newFiguresTest()
	if asked := f.after(time.Second); len(asked) > 0 || len(f.sent) > 0 {
		t.Errorf("nobody watches, and %v is sent", f.sent)
	}
	if n := testing.AllocsPerRun(100, func() { f.tick(f.now) }); n != 0 {
		t.Errorf("nobody watches, and a tick allocates %v times", n)
	}
	there := f.watch(f.now)
	asked := f.after(time.Second)
	if len(asked) != 2 || asked["c"].Seq == 0 || asked["e"].Seq == 0 {
		t.Fatalf("asked %v", asked)
	}
	if again := f.after(time.Second / 10); len(again) > 0 {
		t.Errorf("asked again: %v", again)
	}
	f.answered(wire.Figures{Seq: asked["c"].Seq, Page: page("L1", "c", "d")})
	f.answered(wire.Figures{Seq: 77, Page: page("L2", "e")}) // of nobody
	select {
	case <-there:
		t.Error("it does not wait for L2")
	default:
	}
	f.answered(wire.Figures{Seq: asked["e"].Seq, Page: []byte("garbage")})
	select {
	case <-there:
	default:
		t.Error("it waits for a launcher that has failed")
	}
	if p := f.parts(); len(p) != 1 || len(p["L1"].Peers) != 2 {
		t.Errorf("known: %+v", p)
	}
	if asked = f.after(time.Second); len(asked) != 2 || asked["d"].Seq == 0 || asked["f"].Seq == 0 || f.to[len(f.to)-1] == f.to[0] {
		t.Errorf("asked %v by %v", asked, f.to)
	}
	select { // what is known already is no reason to wait
	case <-f.watch(f.now):
	default:
		t.Error("a further question waits")
	}
	if f.after(watchPeriod + time.Second); f.of != nil || len(f.parts()) > 0 {
		t.Error("nobody watches any more, and figures are kept")
	}
}

// A launcher that does not answer is asked again, by way of others. Its last figures stay.
func TestFiguresOfSilent(t *testing.T) {
	f := newFiguresTest()
	there := f.watch(f.now)
	asked := f.after(0)
	f.answered(wire.Figures{Seq: asked["c"].Seq, Page: page("L1", "c")})
	f.watch(f.now.Add(inquiryPatience))
	for range 3 {
		f.after(inquiryPatience + time.Second)
	}
	select {
	case <-there:
	default:
		t.Error("it waits for a launcher that is silent")
	}
	if p := f.parts(); len(p["L1"].Peers) != 1 {
		t.Errorf("known: %+v", p)
	}
}

// A part of several pages is known once it is complete.
func TestFiguresPages(t *testing.T) {
	f := newFiguresTest()
	f.watch(f.now)
	asked := f.after(0)
	var s timeline.Snapshot
	for i := range 200 {
		s.Peers = append(s.Peers, timeline.Peer{ID: fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)})), Launcher: "L1", Heard: true})
	}
	i := asked["c"]
	for pages := 1; ; pages++ {
		f.sent = nil
		f.answered(wire.Figures{Seq: i.Seq, Page: timeline.EncodePart(s, i.From)})
		if len(f.sent) == 0 {
			if pages == 1 || len(f.parts()["L1"].Peers) != len(s.Peers) {
				t.Errorf("%d peers of %d pages, want %d", len(f.parts()["L1"].Peers), pages, len(s.Peers))
			}
			return
		}
		if i = *f.sent[0].Inquiry; i.Of != "c" || len(f.parts()) > 0 {
			t.Fatalf("the next inquiry is %+v, known are %d launchers", i, len(f.parts()))
		}
	}
}

// The inquiry of another launcher is answered with what this one knows, and its peers tell what they use meanwhile.
func TestFiguresTold(t *testing.T) {
	f := newFiguresTest()
	model := timeline.New()
	model.Add(event.Event{Time: f.now, Peer: "a", Body: event.Member{Who: "a", Launcher: "own"}})
	model.Add(event.Event{Time: f.now, Peer: "a", Body: event.View{Members: []string{"a"}}})
	f.tell(1, wire.Inquiry{Seq: 5}, model, f.now)
	if len(f.sent) != 1 || f.to[0] != 1 || f.sent[0].Figures == nil || f.sent[0].Figures.Seq != 5 {
		t.Fatalf("sent %+v", f.sent)
	}
	p, err := timeline.DecodePart(f.sent[0].Figures.Page, "own")
	if err != nil || len(p.Peers) != 1 || p.Peers[0].ID != "a" {
		t.Errorf("told %+v, %v", p, err)
	}
	if f.after(time.Second); len(f.sent) != 2 || !f.sent[0].Meter {
		t.Errorf("sent %+v", f.sent)
	}
	if f.after(time.Second); len(f.sent) > 0 {
		t.Errorf("sent %+v", f.sent)
	}
}
