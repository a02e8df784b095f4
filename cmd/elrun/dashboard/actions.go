package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// actPatience bounds an action on the job.
const actPatience = 20 * time.Second

// request is the body of a request that acts on the job.
type request struct {
	Peers    int    `json:"peers"`    // scale: number of peers
	Launcher int    `json:"launcher"` // scale: process ID of the elrun, 0 for the only one
	Peer     string `json:"peer"`     // kick: short ID
	Hours    int    `json:"hours"`    // ticket: how long it is valid
}

// answer is the answer: one of both is set.
type answer struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// maxHours bounds the validity of a ticket.
const maxHours = 24 * 365

// act answers a request that acts on the job.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	var what request
	out := answer{}
	status := http.StatusOK
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&what); err != nil {
		out.Error, status = "the request is no JSON object of known fields", http.StatusBadRequest
	} else {
		ctx, cancel := context.WithTimeout(r.Context(), actPatience)
		defer cancel()
		text, err := s.carryOut(ctx, r.PathValue("action"), what)
		out.Text = text
		if err != nil {
			out, status = answer{Error: err.Error()}, http.StatusConflict
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out) // the client may be gone
}

// carryOut carries out an action.
func (s *Server) carryOut(ctx context.Context, action string, what request) (string, error) {
	job, err := s.job.Find(ctx)
	if err != nil {
		return "", err
	}
	switch action {
	case "scale":
		return job.Scale(ctx, what.Peers, what.Launcher)
	case "kick":
		if what.Peer == "" {
			return "", errors.New("no peer is named")
		}
		return job.Kick(ctx, what.Peer)
	case "ticket":
		if what.Hours < 1 || what.Hours > maxHours {
			return "", fmt.Errorf("a ticket for %d hours: want 1 to %d", what.Hours, maxHours)
		}
		t, err := job.Ticket(ctx, time.Duration(what.Hours)*time.Hour)
		return t.Text, err
	case "checkpoint":
		saved, err := job.Checkpoint(ctx, true)
		if errors.Is(err, context.DeadlineExceeded) && saved.Since > 0 { // the wish stands
			err = nil
		}
		return saved.String(), err
	case "stop":
		_, err := job.Stop(ctx)
		return "the peers leave after the present step", err
	}
	return "", fmt.Errorf("unknown action %q", action)
}
