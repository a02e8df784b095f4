package attack

import (
	"context"
	"flag"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// attacks returns the attacks that need a ticket, by name.
func attacks() map[string]func(*attacker, context.Context) error {
	return map[string]func(*attacker, context.Context) error{
		"views": (*attacker).forgeViews, "pretend": (*attacker).pretend, "replay": (*attacker).replay,
		"letters": (*attacker).letters, "junk": (*attacker).junk,
		"offers": (*attacker).offers, "requests": (*attacker).requests,
	}
}

// duration returns the duration of an attack.
func duration() time.Duration {
	if long() {
		return 10 * time.Second
	}
	return time.Second
}

// Holders of a ticket make all attacks at the same time. The attacks have no effect on the job.
func TestTicketHolders(t *testing.T) {
	j := startJob(t, 3)
	attackAll(t, j)
	j.finish(t)
}

// After the attacks all members except one are killed, and the last member continues alone. It has
// no quorum, but its launcher has started all members, and no attack may change that.
func TestLauncherStaysAlone(t *testing.T) {
	j := startJob(t, 3)
	attackAll(t, j)
	for _, p := range j.Peers(t)[1:] {
		process.Signal(t, p.PID, syscall.SIGKILL)
	}
	j.Until(t, "the last member to go on", func() bool { return j.Says("size=1") })
	j.end(t)
	if n := strings.Count(j.Out.String(), "result "); n != 1 {
		t.Errorf("%d results", n)
	}
}

// A newcomer is admitted while holders of a ticket use up the members' limits for requests and
// messages of outsiders.
func TestJoinDuringAttacks(t *testing.T) {
	j := startJob(t, 3)
	wait := beginAttacks(t, j)
	if _, says, status := process.Command(t, "scale", j.Name, "4"); status != 0 {
		t.Error(says)
	}
	j.Until(t, "the newcomer to train", func() bool { return strings.Count(j.Out.String(), "size=4") == 4 })
	wait()
	j.end(t)
	found := regexp.MustCompile(`result steps=\d+ hash=\w+`).FindAllString(j.Out.String(), -1)
	if len(found) != 4 || len(slices.Compact(found)) != 1 || j.Status() != 0 {
		t.Errorf("status %d: %q", j.Status(), found)
	}
}

// attackAll makes all attacks at the same time, and waits for their end.
func attackAll(t *testing.T, j *job) { beginAttacks(t, j)() }

// beginAttacks starts all attacks, each with its own attacker. The returned function waits for their end.
func beginAttacks(t *testing.T, j *job) (wait func()) {
	k := j.ticket(t)
	var all sync.WaitGroup
	only := flag.Lookup("only").Value.String()
	for name, attack := range attacks() {
		if only != "" && !slices.Contains(strings.Split(only, ","), name) {
			continue
		}
		a := newAttacker(t.Context(), t, k, j.size)
		all.Go(func() {
			if n, err := repeat(t.Context(), a, attack); err != nil || n == 0 {
				t.Errorf("%s: done %d times: %v", name, n, err)
			} else {
				t.Logf("%s: done %d times", name, n)
			}
		})
	}
	return all.Wait
}

// repeat makes an attack again and again until duration() has passed, and returns how often.
func repeat(ctx context.Context, a *attacker, attack func(*attacker, context.Context) error) (times int, err error) {
	ctx, cancel := context.WithTimeout(ctx, duration())
	defer cancel()
	for ctx.Err() == nil {
		if err := attack(a, ctx); err != nil && ctx.Err() == nil {
			return times, err
		}
		times++
	}
	return times, nil
}

// A job without attackers has the right result. The long form logs its step times, for a comparison
// with TestTicketHolders.
func TestQuiet(t *testing.T) {
	j := startJob(t, 3)
	process.Pause(t, duration())
	j.finish(t)
}
