package event

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
)

// Slog is a Sink that passes events on as records of package log/slog. The message of a record is the kind of the event, and its
// attributes are the fields of the log, with their names. Steps and measurements have the level Debug; what people
// should look at, such as lost peers and stalls, has Warn; all else has Info. An error of the handler is ignored.
type Slog struct{ Handler slog.Handler }

// Emit implements Sink.
func (s Slog) Emit(e Event) {
	if e.Body == nil || s.Handler == nil {
		return
	}
	ctx, level := context.Background(), levelOf(e.Body)
	if !s.Handler.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(e.Time, level, e.Body.Name(), 0)
	if e.Index != NoPeer {
		r.AddAttrs(slog.String("peer", e.Peer), slog.Int("index", e.Index))
	}
	if e.Epoch > 0 {
		r.AddAttrs(slog.Uint64("epoch", e.Epoch))
	}
	if e.Step > 0 {
		r.AddAttrs(slog.Int64("step", e.Step))
	}
	r.AddAttrs(attrs(e.Body)...)
	_ = s.Handler.Handle(ctx, r) // training goes on if the log cannot be written
}

// levelOf returns the level of an event.
func levelOf(b Body) slog.Level {
	switch b := b.(type) {
	case Step, Usage, Path, Shares, Order, Link, Clock:
		return slog.LevelDebug
	case Lost, Fenced, Forged, Mismatch, Mistake, Refused, Dropped, Restart:
		return slog.LevelWarn
	case Stall:
		if !b.Over {
			return slog.LevelWarn
		}
	case Quorum:
		if b.State != "back" {
			return slog.LevelWarn
		}
	}
	return slog.LevelInfo
}

// attrs returns the fields of a body in the order of the log.
func attrs(b Body) (all []slog.Attr) {
	text, err := json.Marshal(b)
	if err != nil {
		return []slog.Attr{slog.String("error", err.Error())} // a number that JSON cannot have
	}
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token() // the brace
	for d.More() {
		name, err := d.Token()
		var value any
		if err != nil || d.Decode(&value) != nil {
			return all // not reached: the text comes from Marshal
		}
		all = append(all, slog.Any(name.(string), value))
	}
	return all
}
