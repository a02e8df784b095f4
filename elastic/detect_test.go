package elastic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// asleep is the state of a process whose threads all wait.
func asleep() ProcessState { return ProcessAsleep }

// lateHost models a host with too little processor time: messages and work are late by a random
// time, and rarely by a long one.
type lateHost struct {
	rng  *rand.Rand
	most time.Duration // longest pause, in which all work of this process is late
	rare float64       // share of messages that are late by up to most
}

// late returns the delay of one message.
func (l lateHost) late() time.Duration {
	d := time.Duration(l.rng.ExpFloat64() * float64(20*time.Millisecond))
	if l.rng.Float64() < l.rare {
		d += time.Duration(l.rng.Float64() * float64(l.most))
	}
	return d
}

// watch runs a detector that observes a live process for some time, and returns the number of
// suspicions. Ticks are late in the same way as messages.
func (l lateHost) watch(t *testing.T, lasting time.Duration) (suspicions int) {
	t.Helper()
	begin := time.Unix(0, 0)
	now, ticked := begin, begin
	word := begin // when the next message arrives
	var h health
	d := detector{silence: newSilence(begin)}
	for now.Sub(begin) < lasting {
		now = now.Add(heartbeatTicks*tickPeriod + l.late())
		if late := now.Sub(ticked) - heartbeatTicks*tickPeriod; late > lateTick {
			h.worse(now)
			d.excuse(late)
		}
		ticked = now
		for !word.After(now) {
			d.word(word, false)
			word = word.Add(heartbeatTicks*tickPeriod + l.late())
		}
		switch d.judge(now, h.factor(now), asleep) {
		case probe: // the answer is a message, with the same delays
			if at := now.Add(2 * time.Millisecond).Add(l.late()); at.Before(word) {
				word = at
			}
		case suspected:
			suspicions++
			d.word(now, false)
		}
	}
	return suspicions
}

// On a host where processes wait for a processor for up to some seconds, no live process is
// suspected.
func TestLateHostIsNotSuspected(t *testing.T) {
	total := 0
	for seed := range uint64(40) {
		for _, most := range []time.Duration{200 * time.Millisecond, time.Second, 1600 * time.Millisecond} {
			l := lateHost{rng: rand.New(rand.NewPCG(seed, uint64(most))), most: most, rare: 0.02}
			n := l.watch(t, 2*time.Minute)
			total += n
			if most <= time.Second && n > 0 {
				t.Errorf("seed %d, pauses up to %v: suspected %d times", seed, most, n)
			}
		}
	}
	t.Logf("%d suspicions in %d minutes", total, 40*3*2)
	if total > 2 {
		t.Errorf("%d suspicions of one that lives", total)
	}
}

// A real silence is detected within its limit, which includes the probes. A process that waits for
// a processor is excused while it waits.
func TestProcessStates(t *testing.T) {
	for _, c := range []struct {
		state    ProcessState
		least    time.Duration
		most     time.Duration
		describe string
	}{
		{ProcessUnknown, leastSilence, leastSilence + 100*time.Millisecond, "on another host"},
		{ProcessAsleep, leastSilence, leastSilence + 100*time.Millisecond, "asleep"},
		{ProcessHalted, leastSilence - confirmTime, leastSilence - confirmTime + 100*time.Millisecond, "halted"},
		{ProcessBusy, time.Hour, time.Hour, "busy"},
	} {
		begin := time.Unix(0, 0)
		d := detector{silence: newSilence(begin)}
		d.word(begin, false)
		probes, now := 0, begin
		for now.Sub(begin) < time.Hour {
			now = now.Add(50 * time.Millisecond)
			f := d.judge(now, 1, func() ProcessState { return c.state })
			if f == probe {
				probes++
			}
			if f == suspected {
				break
			}
		}
		if took := now.Sub(begin); took < c.least || took > c.most {
			t.Errorf("%s: suspected after %v, want %v to %v", c.describe, took, c.least, c.most)
		}
		if c.state != ProcessHalted && probes < 2 {
			t.Errorf("%s: asked %d times", c.describe, probes)
		}
	}
}

// The usual pauses of a member that has not spoken yet are unknown, so its silence does not count.
func TestNotJudgedBeforeTheFirstWord(t *testing.T) {
	now := time.Unix(0, 0)
	d := detector{silence: newSilence(now)}
	for range 28 {
		now = now.Add(time.Second)
		if f := d.judge(now, 1, asleep); f != trusted {
			t.Fatalf("after %v: %v", now.Sub(time.Unix(0, 0)), f)
		}
	}
}

// A member that a helper has reached gets the limit once more. A member that has reported that it
// does not hear this one must send a message that it does.
func TestVouchedAndDeaf(t *testing.T) {
	begin := time.Unix(0, 0)
	for _, c := range []struct {
		deaf, vouched bool
		want          time.Duration
	}{
		{false, true, 2 * leastSilence},
		{true, false, confirmTime},
		{true, true, confirmTime + leastSilence},
	} {
		d := detector{silence: newSilence(begin)}
		d.word(begin, c.deaf)
		now := begin
		for {
			now = now.Add(10 * time.Millisecond)
			if c.deaf {
				d.word(now, true)
			}
			f := d.judge(now, 1, asleep)
			if f == probe && c.vouched {
				d.vouch(now.Add(time.Millisecond))
			}
			if f == suspected {
				break
			}
		}
		if took := now.Sub(begin); took < c.want || took > c.want+50*time.Millisecond {
			t.Errorf("deaf %v, vouched %v: suspected after %v, want %v", c.deaf, c.vouched, took, c.want)
		}
	}
}

// The factor rises with each sign of lateness, up to a bound, and falls with time.
func TestHealth(t *testing.T) {
	now := time.Unix(0, 0)
	var h health
	if h.factor(now) != 1 {
		t.Errorf("at first it is %d", h.factor(now))
	}
	for range 20 {
		h.worse(now)
	}
	if h.factor(now) != 1+mostLateness || !h.worst() {
		t.Errorf("at worst it is %d", h.factor(now))
	}
	for i := range mostLateness {
		now = now.Add(healthStep)
		if got := h.factor(now); got != time.Duration(mostLateness-i) {
			t.Errorf("after %d steps it is %d", i+1, got)
		}
	}
	h.worse(now.Add(time.Hour))
	if got := h.factor(now.Add(time.Hour)); got != 2 {
		t.Errorf("after an hour one sign makes it %d", got)
	}
}

// While the first session is being entered silence does not count, except for a halted process, and
// for a process of another host that is silent for longer than the largest limit.
func TestNotJudgedWhileEntering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			state  ProcessState
			silent time.Duration
			want   bool
		}{
			{ProcessAsleep, time.Hour, false}, {ProcessBusy, time.Hour, false},
			{ProcessUnknown, mostSilence - time.Second, false}, {ProcessUnknown, mostSilence + time.Second, true},
			{ProcessHalted, time.Second, false}, {ProcessHalted, 2 * time.Second, true},
		} {
			d := testDriver(t, 3, 0)
			d.first = [32]byte{1}
			d.self.Launcher = "here"
			if c.state != ProcessUnknown {
				d.view.Members[1].Process, d.view.Members[1].Launcher = "1", "here"
				d.cfg.Inspect = func(Member) ProcessState { return c.state }
			}
			p := d.peerOf("001")
			now := time.Now().Add(c.silent)
			for range 10 * slowTicks {
				d.ticks++
				now = now.Add(time.Millisecond)
				d.look("001", p, now)
			}
			if got := p.suspected != "" || !p.asked.IsZero(); got != c.want {
				t.Errorf("state %d, silent for %v: judged is %v", c.state, c.silent, got)
			}
		}
	})
}

// A helper answers a probe request at once, which shows that it can be reached, and again when the
// probed member has answered. Only the second answer counts for that member.
func TestHelpers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, 7, 3)
		sent := make(map[string]string)
		read := make(chan struct{})
		go func() {
			defer close(read)
			for {
				select {
				case s := <-d.ep.Network.(wall).sent:
					sent[fmt.Sprintf("%d %s", s[0], s[1:])] = s
				case <-d.out.ctx.Done():
					return
				}
			}
		}()
		if got := fmt.Sprint(d.helpersFor("005")); got != "[004 001]" {
			t.Errorf("helpers about 005: %s", got)
		}
		d.peerOf("004").asked = time.Now()
		if got := fmt.Sprint(d.helpersFor("005")); got != "[001 002]" {
			t.Errorf("helpers about 005 while 004 owes a word: %s", got)
		}
		p := d.peerOf("005")
		d.askFor("005", p)
		if d.wellHelped(p) {
			t.Error("nobody has answered yet")
		}
		d.receive("002", probeMessage{About: "005"}.append(controlProbeReply, nil))
		if !d.wellHelped(p) || !p.vouched.IsZero() {
			t.Errorf("helped is %v, vouched at %v", p.helped, p.vouched)
		}
		d.receive("006", probeMessage{About: "005", Heard: true}.append(controlProbeReply, nil))
		if !p.vouched.IsZero() {
			t.Error("a member that was not asked vouches")
		}
		d.receive("002", probeMessage{About: "005", Heard: true}.append(controlProbeReply, nil))
		if p.vouched.IsZero() {
			t.Error("the helper's word does not count")
		}
		d.receive("001", probeMessage{About: "006"}.append(controlProbe, nil))
		d.receive("else", probeMessage{About: "006"}.append(controlProbe, nil))
		d.happened(PeerEvent{Peer: "006", Kind: PeerMessage, Data: heartbeat{}.append(nil)})
		synctest.Wait()
		for _, want := range []probeMessage{{About: "006"}, {About: "006", Heard: true}} {
			b := string(want.append(controlProbeReply, nil))
			if sent[fmt.Sprintf("%d %s", b[0], b[1:])] == "" {
				t.Errorf("%+v was not sent", want)
			}
		}
		if got := d.peerOf("006").askers; len(got) > 0 {
			t.Errorf("%v still wait for the word", got)
		}
		d.out.cancel()
		<-read
	})
}

// The log distinguishes a member that leaves because it held up the others from a member that asked
// to leave, even if its own report comes after the view.
func TestWordForLeaving(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		heartbeat heartbeat
		blamed    time.Duration // how long ago; 0 for never
		want      string
	}{
		{heartbeat{Stalled: true}, 0, "stalled"},
		{heartbeat{Leaving: true}, 0, "asked"},
		{heartbeat{Leaving: true}, time.Second, "asked"},
		{heartbeat{}, time.Second, "stalled"},
		{heartbeat{}, makeWayAfter + time.Second, "asked"},
		{heartbeat{}, 0, "asked"},
	} {
		p := &peer{heartbeat: c.heartbeat}
		if c.blamed > 0 {
			p.blamed = now.Add(-c.blamed)
		}
		if got := p.leaves(now); got != c.want {
			t.Errorf("%+v, named %v ago: %q, want %q", c.heartbeat, c.blamed, got, c.want)
		}
	}
}

// A suspicion is withdrawn only by messages which report that the sender hears this member.
func TestDeafStaysSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, 3, 0)
		p := d.peerOf("001")
		p.suspected = "unreachable"
		for _, deaf := range []bool{true, false} {
			d.happened(PeerEvent{Peer: "001", Kind: PeerMessage, Data: heartbeat{Deaf: deaf}.append(nil)})
			if got := p.suspected != ""; got != deaf {
				t.Errorf("deaf %v: suspected is %v", deaf, got)
			}
		}
	})
}
