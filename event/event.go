// Package event defines the event log: the reports of all peers about a job, one JSON object per
// line. Scripts outside the project read the log, so the names of events and fields do not change;
// new events and fields may be added.
//
// A package that reports something emits an Event, with one of the bodies of this package, to a
// Sink:
//
//	sink.Emit(event.Event{Time: now, Peer: id, Epoch: 1, Step: 7, Body: event.Step{Loss: 0.3}})
//
// Bodies use these conventions: Who is the short ID of the peer that the event is about, Reason is
// text for people, and the suffix MS stands for milliseconds.
package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Body is the part of an event that depends on its kind. Each kind of event has a type in this
// package.
type Body interface {
	// Name returns the kind, the "event" field of the log.
	Name() string
}

// Event is one line of the log: a header that all kinds have, and a body.
type Event struct {
	Time time.Time
	Peer string // short ID of the emitter
	// Index is the local index of the emitter: the index among the peers of one launcher. It is NoPeer for
	// an event of a launcher about no peer.
	Index int
	Epoch uint64 // epoch of the view; 0 if the event belongs to no epoch
	Step  int64  // the first step is 1; 0 if the event belongs to no step
	Body  Body
}

// NoPeer is the Index of an event of a launcher that is about no peer; Event.Peer is "".
const NoPeer = -1

// Sink receives events. Emit is safe for concurrent use and does not block for long. Emit returns
// no error, because training goes on if the log cannot be written.
type Sink interface {
	Emit(Event)
}

// Discard is a Sink that drops all events.
type Discard struct{}

// Emit drops e.
func (Discard) Emit(Event) {}

// header is the JSON form of the fields that all events have.
type header struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Peer  string    `json:"peer"`
	Index int       `json:"index"`
	Epoch uint64    `json:"epoch,omitempty"`
	Step  int64     `json:"step,omitempty"`
}

// MarshalJSON implements json.Marshaler. It writes the header and the fields of the body as one
// flat object, or returns an error if there is no body.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Body == nil {
		return nil, fmt.Errorf("event: marshal: no body")
	}
	if o, ok := e.Body.(Other); ok {
		return o.Raw, nil // unchanged
	}
	head, err := json.Marshal(header{e.Time.UTC(), e.Body.Name(), e.Peer, e.Index, e.Epoch, e.Step})
	if err != nil {
		return nil, fmt.Errorf("event: marshal %s: %w", e.Body.Name(), err)
	}
	body, err := json.Marshal(e.Body)
	if err != nil {
		return nil, fmt.Errorf("event: marshal %s: %w", e.Body.Name(), err)
	}
	if bytes.Equal(body, []byte("{}")) {
		return head, nil
	}
	return append(append(head[:len(head)-1], ','), body[1:]...), nil
}

// UnmarshalJSON implements json.Unmarshaler. An event of an unknown kind becomes an Other, so that
// the log of a newer version stays readable.
func (e *Event) UnmarshalJSON(b []byte) error {
	var h header
	if err := json.Unmarshal(b, &h); err != nil {
		return fmt.Errorf("event: unmarshal: %w", err)
	}
	body, err := decodeBody(h.Event, b)
	if err != nil {
		return fmt.Errorf("event: unmarshal %q: %w", h.Event, err)
	}
	*e = Event{h.Time, h.Peer, h.Index, h.Epoch, h.Step, body}
	return nil
}

// kinds returns an empty body of each kind that this version knows. The most frequent ones are first.
func kinds() []Body {
	return []Body{
		Step{}, View{}, Shares{}, Growth{}, Order{}, Lost{}, Stall{}, Path{}, Join{}, Leave{}, Parked{}, Fenced{}, Forged{},
		Audit{}, Resync{}, Mismatch{}, Mistake{}, Refused{}, Complete{}, Unchanged{}, Decided{}, Quorum{}, Restart{}, Saving{}, Checkpoint{},
		Dropped{}, Done{}, Job{}, Member{}, Exit{}, Note{}, Notice{}, Eval{}, Usage{}, Link{}, Clock{},
	}
}

// Kinds returns the names of all kinds of events that this version knows, in alphabetical order.
func Kinds() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.Name())
	}
	slices.Sort(names)
	return names
}

// decodeBody decodes the fields of the body of the named kind.
func decodeBody(name string, b []byte) (Body, error) {
	for _, k := range kinds() {
		if k.Name() != name {
			continue
		}
		body := reflect.New(reflect.TypeOf(k))
		if err := json.Unmarshal(b, body.Interface()); err != nil {
			return nil, err
		}
		return body.Elem().Interface().(Body), nil
	}
	return Other{name, append(json.RawMessage(nil), b...)}, nil
}
