package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// hooks runs the commands of Output.Hooks, one after the other, in a goroutine of its own. The launcher's loop
// calls offer. A nil hooks does nothing.
type hooks struct {
	list    []spec.Hook
	job     string
	say     func(format string, args ...any)
	orphans *proc.ChildReaper
	due     chan hookCall
	ended   chan struct{}
	ctx     context.Context // its end kills the command that runs
	cancel  context.CancelFunc
	recent  map[string]time.Time // when an event with a key was offered last
	late    bool                 // a line has said that events are left out
}

// hookCall is a command that is due.
type hookCall struct {
	name, command string
	line          []byte
}

const (
	// maxHookCalls bounds the commands that wait.
	maxHookCalls = 64
	// hookPeriod is the time in which equal events of several peers count once.
	hookPeriod = 10 * time.Second
	// maxRecent bounds the keys of events that are remembered.
	maxRecent = 1000
	// hookLimit is how long a command may take.
	hookLimit = time.Minute
	// hookPatience is how long the launcher waits at the end of a job that was not interrupted.
	hookPatience = 10 * time.Second
)

// start starts the goroutine of the hooks of o, which finish ends; say and orphans are set. It returns nil if
// there are no hooks.
func (h *hooks) start(o *spec.Options) *hooks {
	if len(o.Output.Hooks) == 0 {
		return nil
	}
	h.list, h.job, h.due = o.Output.Hooks, o.Job, make(chan hookCall, maxHookCalls)
	h.ended, h.recent = make(chan struct{}), make(map[string]time.Time)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	go h.run()
	return h
}

// offer makes the commands for an event due. It does not block: while maxHookCalls wait, further ones are left
// out.
func (h *hooks) offer(e event.Event, now time.Time) {
	if h == nil {
		return
	}
	name := e.Body.Name()
	for _, hook := range h.list {
		if !slices.Contains(hook.Events, name) {
			continue
		}
		line, err := json.Marshal(e)
		if err != nil || h.isKnown(hook.Command+sameEvent(e), now) {
			continue
		}
		select {
		case h.due <- hookCall{name, hook.Command, line}:
		default:
			if !h.late {
				h.late = true
				h.say("--on %s: its command is too slow, so some events are left out", name)
			}
		}
	}
}

// isKnown reports whether an event with a key was offered within hookPeriod, and records the key.
func (h *hooks) isKnown(key string, now time.Time) bool {
	last, known := h.recent[key]
	if len(h.recent) >= maxRecent {
		clear(h.recent)
	}
	h.recent[key] = now
	return known && now.Sub(last) < hookPeriod
}

// sameEvent returns a key that is equal for the reports of several peers of the same: measurements differ, and
// texts do not.
func sameEvent(e event.Event) string {
	body, err := json.Marshal(e.Body)
	var fields map[string]any
	if err != nil || json.Unmarshal(body, &fields) != nil {
		return e.Body.Name()
	}
	for name, value := range fields {
		switch value.(type) {
		case string, bool:
		default:
			delete(fields, name)
		}
	}
	texts, _ := json.Marshal(fields) // it cannot fail: it comes from JSON
	key := fmt.Sprintf("%s %d %d %s", e.Body.Name(), e.Epoch, e.Step, texts)
	switch e.Body.(type) {
	case event.Exit, event.Restart, event.Usage, event.Path, event.Refused, event.Complete, event.Dropped: // about the peer of the header
		key += fmt.Sprintf(" %d %s", e.Index, e.Peer)
	}
	return key
}

// run runs the commands until due is closed.
func (h *hooks) run() {
	defer close(h.ended)
	failed := make(map[string]bool)
	for c := range h.due {
		if h.ctx.Err() != nil {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(h.ctx, hookLimit, fmt.Errorf("it took more than %v", hookLimit))
		var words lastWords
		err := proc.RunCommand(ctx, h.orphans, proc.Command{Script: c.command, Input: bytes.NewReader(append(c.line, '\n')),
			Env: append(os.Environ(), wire.EnvJob+"="+h.job), Stderr: words.add})
		if cause := context.Cause(ctx); cause != nil && h.ctx.Err() == nil {
			err = cause
		}
		cancel()
		words.end()
		if err != nil && h.ctx.Err() == nil && !failed[c.command] {
			failed[c.command] = true
			if words.last != "" {
				err = fmt.Errorf("%w: %s", err, words.last)
			}
			h.say("--on %s: %s: %v", c.name, wire.Clip(c.command, shownPath), err)
		}
	}
}

// finish waits for the commands that are due, as long as the patience, and then kills the one that runs.
func (h *hooks) finish(patience time.Duration) {
	if h == nil {
		return
	}
	close(h.due)
	defer h.cancel()
	late := time.AfterFunc(patience, h.cancel)
	defer late.Stop()
	<-h.ended
}
