package run

import (
	"maps"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/wire"
)

// figures collects what the launchers of other members know of their peers, while somebody watches the job: it asks
// each of them once a second, through a peer of this launcher and one of theirs. The launcher's loop owns it.
//
//	launcher --inquiry--> peer --request--> member --inquiry--> its launcher, and back
type figures struct {
	send    func(seat int, m wire.Message)
	roster  *roster
	watched time.Time // when somebody asked last
	seq     int       // of the last inquiry
	of      map[string]*foreign
	tried   chan struct{} // closed when each launcher has answered, or failed, since somebody watches; nil if nobody waits

	own     timeline.Snapshot // for the inquiries of others
	ownAt   time.Time
	metered time.Time // when the peers of this launcher were asked last what they use
}

// foreign is the launcher of other members.
type foreign struct {
	turn  int // counts the members that were asked
	seq   int // of the inquiry that is under way; 0 for none
	asked time.Time
	seat  int           // the peer of this launcher that asks
	to    elastic.ID    // the member that it asks
	part  timeline.Part // the latest, complete
	next  timeline.Part // of which further pages come
	tried bool          // it has answered, or failed to
}

const (
	// watchPeriod is the time after the last question for which figures are collected.
	watchPeriod = 10 * time.Second
	// inquiryPeriod is the time between two inquiries at a launcher.
	inquiryPeriod = time.Second
	// inquiryPatience is how long an answer may take.
	inquiryPatience = 3 * time.Second
	// meterPeriod is the time between two requests to the peers for what they use.
	meterPeriod = 5 * time.Second
	// ownPeriod is how long what this launcher knows is told to others.
	ownPeriod = inquiryPeriod / 4
	// maxForeign bounds the launchers that are asked, and maxForeignPeers the peers of one.
	maxForeign      = 256
	maxForeignPeers = 1 << 12
)

// watch records that somebody watches the job at now. The returned channel is closed when the figures of all other
// launchers are there, as far as they answer.
func (f *figures) watch(now time.Time) <-chan struct{} {
	f.watched = now
	if f.of == nil {
		f.of = make(map[string]*foreign)
	}
	f.meet(f.roster.others())
	if f.tried == nil {
		f.tried = make(chan struct{})
	}
	tried := f.tried
	f.settle()
	return tried
}

// meet adds the launchers of members that are new. One whose members are gone stays, as its peers have spent time.
func (f *figures) meet(others []elastic.Member) {
	for _, m := range others {
		if m.Launcher != "" && f.of[m.Launcher] == nil && len(f.of) < maxForeign {
			f.of[m.Launcher] = &foreign{}
		}
	}
}

// settle closes tried if all have answered or failed.
func (f *figures) settle() {
	for _, o := range f.of {
		if !o.tried {
			return
		}
	}
	if f.tried != nil {
		close(f.tried)
		f.tried = nil
	}
}

// tick makes the inquiries that are due at now.
func (f *figures) tick(now time.Time) {
	wanted := now.Sub(f.watched) <= watchPeriod || now.Sub(f.ownAt) <= watchPeriod
	if wanted && !f.roster.order.Logged && now.Sub(f.metered) >= meterPeriod {
		f.metered = now
		for _, seat := range f.roster.members() {
			f.send(seat, wire.Message{Meter: true})
		}
	}
	if f.of == nil {
		return
	}
	if now.Sub(f.watched) > watchPeriod {
		f.of = nil
		f.settle()
		return
	}
	others, seats := f.roster.others(), f.roster.members()
	f.meet(others)
	for _, name := range slices.Sorted(maps.Keys(f.of)) {
		o := f.of[name]
		if o.seq != 0 && now.Sub(o.asked) > inquiryPatience {
			o.seq, o.tried = 0, true
		}
		if o.seq != 0 || now.Sub(o.asked) < inquiryPeriod {
			continue
		}
		o.asked = now
		theirs := slices.DeleteFunc(slices.Clone(others), func(m elastic.Member) bool { return m.Launcher != name })
		if len(theirs) == 0 || len(seats) == 0 {
			o.tried = true
			continue
		}
		o.next, o.to, o.seat = timeline.Part{}, theirs[o.turn%len(theirs)].ID, seats[o.turn%len(seats)]
		o.turn++
		f.ask(o)
	}
	f.settle()
}

// ask asks for the next page.
func (f *figures) ask(o *foreign) {
	f.seq++
	o.seq = f.seq
	f.send(o.seat, wire.Message{Inquiry: &wire.Inquiry{Seq: o.seq, Of: o.to, From: o.next.Next}})
}

// answered takes a page of another launcher, and asks for the page after it.
func (f *figures) answered(a wire.Figures) {
	for name, o := range f.of {
		if o.seq != a.Seq {
			continue
		}
		from := o.next.Next
		o.seq = 0
		page, err := timeline.DecodePart(a.Page, name)
		if from == 0 {
			o.next.Former = page.Former
		}
		o.next.Peers, o.next.Next = append(o.next.Peers, page.Peers...), page.Next
		switch {
		case err != nil: // it has failed, or has another version: the next inquiry asks another member
			o.tried = true
		case page.Next > from && len(o.next.Peers) < maxForeignPeers:
			f.ask(o)
		default:
			o.part, o.tried = o.next, true
		}
	}
	f.settle()
}

// parts returns what is known of other launchers, by their names.
func (f *figures) parts() map[string]timeline.Part {
	all := make(map[string]timeline.Part)
	for name, o := range f.of {
		if len(o.part.Peers) > 0 {
			all[name] = o.part
		}
	}
	return all
}

// tell answers an inquiry of another launcher, which has come by a peer of this one.
func (f *figures) tell(seat int, i wire.Inquiry, model *timeline.Job, now time.Time) {
	if now.Sub(f.ownAt) > ownPeriod {
		f.own, f.ownAt = model.Snapshot(), now
	}
	f.send(seat, wire.Message{Figures: &wire.Figures{Seq: i.Seq, Page: timeline.EncodePart(f.own, i.From)}})
}
