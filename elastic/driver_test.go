package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

// wall is a Network whose Send blocks until the test receives the message.
type wall struct {
	Network
	sent chan string
}

func (w wall) Send(ctx context.Context, to ID, msg []byte) error {
	select {
	case w.sent <- string(msg):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w wall) Events() <-chan PeerEvent { return nil }
func (w wall) Redial(ID)                {}
func (w wall) Introduce([]Member) error { return nil }

// testDriver returns the driver of a member of a view of n members. The driver has neither a
// goroutine nor a machine.
func testDriver(t *testing.T, n, self int) *driver {
	r := testRoster(n, self)
	d := idleDriver(new(Config), Endpoint{Self: r.self, Network: wall{sent: make(chan string)}}, nil)
	d.roster = *r
	d.loop.cancel() // there is no goroutine to call functions
	t.Cleanup(d.out.stop)
	t.Cleanup(d.admitter.dialer.work.Wait)
	d.status.current.phase, d.status.current.view = inside, d.roster.view
	return d
}

// testRoster returns the roster of a member of a view of n members, which have all sent a message.
func testRoster(n, self int) *roster {
	r := &roster{peers: make(map[ID]*peer)}
	v := View{Epoch: 3}
	for i := range n {
		m := Member{ID: ID(fmt.Sprintf("%03d", i)), Index: i}
		v.Members = append(v.Members, m)
		r.peers[m.ID] = &peer{detector: detector{silence: newSilence(time.Now()), spoke: true}}
	}
	r.self = v.Members[self]
	delete(r.peers, r.self.ID)
	r.replace(v)
	return r
}

// Two views of one epoch may have different members: a member that was given another first view
// than the others may receive a view of the others with the epoch of its own view.
func TestWatchedInAnotherViewOfTheEpoch(t *testing.T) {
	d := testDriver(t, 5, 0)
	d.roster.replace(View{Epoch: d.roster.view.Epoch, Members: []Member{d.roster.self, {ID: "other"}}})
	if got := d.roster.watched(); !slices.Equal(got, []ID{"other"}) {
		t.Errorf("watches %v, which are not the others of the view", got)
	}
	d.heartbeats.sendAll()
}

// Each member watches the members that watch it: two before and two after it, or all others in a
// small group.
func TestWatched(t *testing.T) {
	sorted := func(ids []ID) []ID { return slices.Sorted(slices.Values(ids)) }
	synctest.Test(t, func(t *testing.T) {
		for n := 1; n <= 12; n++ {
			by := make(map[ID][]ID)
			for self := range n {
				d := testDriver(t, n, self)
				watched := d.roster.watched()
				if len(watched) != min(n-1, 4) {
					t.Errorf("member %d of %d watches %v", self, n, watched)
				}
				for _, id := range watched {
					by[id] = append(by[id], d.ep.Self.ID)
				}
				if self == n-1 && n > 5 && !slices.Equal(sorted(watched), []ID{"000", "001", d.roster.view.Members[n-3].ID, d.roster.view.Members[n-2].ID}) {
					t.Errorf("the last of %d watches %v", n, watched)
				}
			}
			for self := range n {
				d := testDriver(t, n, self)
				watched := sorted(d.roster.watched())
				if !slices.Equal(watched, by[d.ep.Self.ID]) {
					t.Errorf("member %d of %d watches %v and is watched by %v", self, n, watched, by[d.ep.Self.ID])
				}
			}
		}
	})
}

// A newcomer that waits for its next request to join handles many ticks at once.
func TestSpanOfNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, 1, 0)
		d.roster.view, d.m, d.clock.ticks = View{}, nil, 10
		if got := d.span(); got != slowTicks-10 {
			t.Errorf("without a machine: %d ticks at once, want %d", got, slowTicks-10)
		}
		d.m = member.NewJoiner(member.Config{Self: member.Member{ID: "self"}, Contacts: []member.ID{"contact"}})
		if got := d.span(); got != 1 {
			t.Errorf("before the first request: %d ticks at once", got)
		}
		d.m.Tick()
		if got := d.span(); got != slowTicks-10 {
			t.Errorf("after the first request: %d ticks at once, want %d", got, slowTicks-10)
		}
		asked := 0
		for range 100 {
			d.m.Tick()
			if asked += len(d.m.Ready().Messages); asked > 1 {
				return
			}
		}
		t.Error("the request is not repeated")
	})
}

// An idle member handles all ticks up to its next heartbeat at once. A member whose machine has
// work handles each tick separately.
func TestSpan(t *testing.T) {
	for name, c := range map[string]struct {
		members     int
		near, work  bool
		ticks, want int
	}{
		"small group":             {members: 5, ticks: 10, want: heartbeatTicks},
		"after a tick":            {members: 5, ticks: 11, want: heartbeatTicks - 1},
		"members of other hosts":  {members: 12, ticks: 50, want: heartbeatTicks},
		"members of one host":     {members: 12, near: true, ticks: 50, want: slowTicks},
		"few members of one host": {members: 5, near: true, ticks: 50, want: heartbeatTicks},
		"a member leaves":         {members: 12, near: true, work: true, ticks: 50, want: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := testDriver(t, c.members, 0)
			for _, p := range d.roster.peers {
				p.near = c.near
			}
			var all []member.Member
			for _, m := range d.roster.view.Members {
				all = append(all, member.Member{ID: member.ID(m.ID)})
			}
			var err error
			if d.m, err = member.New(member.Config{Self: all[0]}, all); err != nil {
				t.Fatal(err)
			}
			if c.work {
				d.m.Step(member.Kick{Peer: all[1].ID})
			}
			d.clock.ticks = c.ticks
			if got := d.span(); got != c.want {
				t.Errorf("%s: %d ticks at once, want %d", name, got, c.want)
			}
		})
	}
}

// A period in which this process did not run does not count as silence of other members.
func TestOwnLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []time.Duration{tickPeriod, 2 * time.Second, time.Hour} {
			d := testDriver(t, 2, 0)
			p := d.roster.peerOf("001")
			d.clock.ticked = time.Now()
			now := d.clock.ticked.Add(late)
			d.tick(now, 1)
			if p.overdue(now, 1) {
				t.Errorf("a tick that came after %v makes the other one silent", late)
			}
			if !p.overdue(now.Add(leastSilence+tickPeriod), 1) {
				t.Errorf("after a tick that came after %v the other one is never silent", late)
			}
		}
	})
}

// A member steps down only if another member of the view requests it and the request names the
// present epoch. A member does not step down if it has entered a later session than the request
// says, itself waits for others to enter, or has reported that it is busy.
func TestMakeWayConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			from    ID
			request stepDown
			entered uint64
			busy    string
			waits   bool // for others to enter
			want    bool
		}{
			"in a call":         {"001", stepDown{3, 3}, 3, "", false, true},
			"still to enter":    {"001", stepDown{3, 2}, 2, "", false, true},
			"not in the call":   {"001", stepDown{3, 3}, 2, "", false, true},
			"stranger":          {"else", stepDown{3, 3}, 3, "", false, false},
			"earlier session":   {"001", stepDown{2, 2}, 2, "", false, false},
			"later session":     {"001", stepDown{4, 4}, 3, "", false, false},
			"gone on":           {"001", stepDown{3, 3}, 4, "", false, false},
			"entered meanwhile": {"001", stepDown{3, 2}, 3, "", false, false},
			"waits itself":      {"001", stepDown{3, 3}, 3, "", true, false},
			"busy":              {"001", stepDown{3, 3}, 3, "evaluating", false, false},
		} {
			d := testDriver(t, 3, 0)
			d.report.report = heartbeat{Entered: c.entered, Busy: c.busy}
			if c.waits {
				d.entry.begin(d.roster.view, time.Now())
			}
			d.receive(c.from, c.request.append(nil))
			if got := d.report.get().Stalled; got != c.want {
				t.Errorf("%s: makes way is %v", name, got)
			}
		}
	})
}

// A member that receives the announcement of a peer of another launcher acknowledges it, and never
// relies on a single launcher again.
func TestForeignIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, 3, 0)
		d.launcher.asserted, d.launcher.on = true, true
		d.receive("001", []byte{byte(controlForeignJoin)})
		if got := <-d.ep.Network.(wall).sent; got != string(rune(controlForeignJoinAck)) {
			t.Errorf("the answer is %q", got)
		}
		for _, id := range []ID{"001", "002"} {
			d.receive(id, heartbeat{Sole: true}.append(nil))
		}
		if d.launcher.on || !d.launcher.over {
			t.Errorf("on %v, over %v", d.launcher.on, d.launcher.over)
		}
	})
}

// If a receiver accepts no messages, the number of messages that wait for it is bounded. The queue
// keeps the newest messages, in order.
func TestSendQueueKeepsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wall{sent: make(chan string)}
		o := newSendQueues(w)
		var read sync.WaitGroup
		read.Go(func() {
			for {
				select {
				case <-o.failures:
				case <-o.ctx.Done():
					return
				}
			}
		})
		send := func(i int) { o.send("to", fmt.Append(nil, i)) }
		send(0)
		synctest.Wait() // the first message is being sent
		for i := 1; i <= 10*sendQueueSize; i++ {
			send(i)
		}
		got := []string{<-w.sent}
		for range sendQueueSize {
			got = append(got, <-w.sent)
		}
		synctest.Wait()
		select {
		case more := <-w.sent:
			t.Errorf("%s is sent as well", more)
		default:
		}
		if got[0] != "0" || got[1] != fmt.Sprint(9*sendQueueSize+1) || got[sendQueueSize] != fmt.Sprint(10*sendQueueSize) {
			t.Errorf("got %v", got)
		}
		o.stop()
		read.Wait()
	})
}

// Only an error that is ErrGone shows that the receiver is certainly gone.
func TestGone(t *testing.T) {
	if (failed{"a", fmt.Errorf("refused: %w", ErrGone)}).gone() != true || (failed{"a", errors.New("timeout")}).gone() {
		t.Error("wrong about who is gone")
	}
}

// A helper vouches for a probed member only if the member has answered the helper. Other heartbeats
// do not count, because a member that receives nothing also sends them.
func TestVouchesForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, 3, 0)
		p := d.roster.peerOf("001")
		for _, c := range []struct {
			heartbeat heartbeat
			want      bool
		}{{heartbeat{}, false}, {heartbeat{Answer: true, Deaf: true}, false}, {heartbeat{Answer: true}, true}} {
			p.askers = []ID{"002"}
			d.happened(PeerEvent{Peer: "001", Kind: PeerMessage, Data: c.heartbeat.append(nil)})
			if got := len(p.askers) == 0; got != c.want {
				t.Errorf("%+v: vouches is %v", c.heartbeat, got)
			}
		}
	})
}

// A member that has asked to leave tells the newcomers of each later view, which did not receive
// its earlier heartbeats. So a newcomer knows that the job is at its end, also if the heartbeat
// arrives before the view that admits it.
func TestNewcomersLearnOfTheEnd(t *testing.T) {
	for _, leaving := range []bool{false, true} {
		d := testDriver(t, 2, 0)
		d.out.cancel() // messages stay in the send queues
		d.emit = func(uint64, event.Body) {}
		if leaving {
			d.report.leave(true)
		}
		newcomer := Member{ID: "new"}
		v := member.View{Epoch: d.roster.view.Epoch + 1}
		for _, m := range append(slices.Clone(d.roster.view.Members), newcomer) {
			one, err := toMember(m)
			if err != nil {
				t.Fatal(err)
			}
			v.Members = append(v.Members, one)
		}
		d.entered(v)
		if got := d.heartbeats.sent(t, newcomer.ID); leaving != (len(got) == 1 && got[0].Ended) {
			t.Errorf("leaving %v: the newcomer gets %+v", leaving, got)
		}
		late := testDriver(t, 2, 0)
		late.roster = roster{self: newcomer, peers: make(map[ID]*peer)}
		for _, h := range d.heartbeats.sent(t, newcomer.ID) {
			late.receiveHeartbeat(d.roster.self.ID, h)
		}
		if s, _ := late.status.now(); s.ended != leaving {
			t.Errorf("leaving %v: for the newcomer the end of the job is %v", leaving, s.ended)
		}
	}
}
