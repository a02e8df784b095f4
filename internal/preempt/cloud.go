package preempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// answerPatience is the time limit for an answer of a metadata service.
	answerPatience = 10 * time.Second
	// eventsPatience is the time limit for Azure's answers about events: the first request starts
	// a service, which takes up to two minutes.
	eventsPatience = 150 * time.Second
	// holdSeconds is the longest time, in seconds, for which Google's service waits for a change of
	// the value before it answers (long polling).
	holdSeconds = 60
	// maxAnswer bounds the bytes that are read from an answer.
	maxAnswer = 1 << 20
)

// metadata is the metadata service of a cloud, which gives a machine information about itself. It
// is safe for concurrent use.
type metadata struct {
	address string // URL without a path
	client  *http.Client
}

// answer is an HTTP response of a metadata service.
type answer struct {
	status int
	etag   string
	body   string
}

// get requests a path with one header field.
func (m *metadata) get(ctx context.Context, patience time.Duration, path, field, value string) (answer, error) {
	return m.ask(ctx, patience, http.MethodGet, path, field, value)
}

// ask sends a request with one header field and returns the answer.
func (m *metadata) ask(ctx context.Context, patience time.Duration, method, path, field string, value string) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, m.address+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set(field, value)
	res, err := m.client.Do(req)
	if err != nil {
		// A url.Error repeats the method and the whole URL; the address of the service is enough.
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return answer{}, fmt.Errorf("metadata service %s: %w", m.address, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("metadata service %s: %w", m.address, err)
	}
	return answer{res.StatusCode, res.Header.Get("Etag"), strings.TrimSpace(string(b))}, nil
}

// unexpected returns the error for an answer that no correct service of the cloud gives.
func (m *metadata) unexpected(path string, a answer) error {
	path, _, _ = strings.Cut(path, "?")
	return fmt.Errorf("metadata service %s answers %s with status %d and %d bytes, which this cloud does not send: check that the program runs in this cloud", m.address, path, a.status, len(a.body))
}

// aws asks Amazon EC2 whether the spot instance will be interrupted (IMDSv2). The notice comes two
// minutes ahead.
type aws struct {
	*metadata
	token string // session token; "" if a new one is needed
}

const (
	// IMDSv2 gives answers only to requests with a token, which a PUT request returns.
	awsToken  = "/latest/api/token"
	awsAction = "/latest/meta-data/spot/instance-action"
)

// poll returns the notice, or "" if there is none.
func (a *aws) poll(ctx context.Context) (string, error) {
	if a.token == "" {
		got, err := a.ask(ctx, answerPatience, http.MethodPut, awsToken, "X-aws-ec2-metadata-token-ttl-seconds", "21600")
		if err != nil {
			return "", err
		}
		if got.status != http.StatusOK || got.body == "" {
			return "", a.unexpected(awsToken, got)
		}
		a.token = got.body
	}
	got, err := a.get(ctx, answerPatience, awsAction, "X-aws-ec2-metadata-token", a.token)
	if err != nil {
		return "", err
	}
	var action struct{ Action, Time string }
	// 404 is the normal answer: no interruption is scheduled.
	switch {
	case got.status == http.StatusNotFound:
		return "", nil
	case got.status == http.StatusUnauthorized:
		a.token = "" // it has expired: get a new one at the next poll
	case got.status == http.StatusOK && json.Unmarshal([]byte(got.body), &action) == nil && action.Action != "":
		return fmt.Sprintf("aws: %s at %s", action.Action, action.Time), nil
	}
	return "", a.unexpected(awsAction, got)
}

// gcp asks Google Compute Engine whether the instance is being preempted. The notice comes 30
// seconds ahead. The service holds a request until the value changes.
type gcp struct {
	*metadata
	etag string // entity tag of the last answer; NONE at first
}

// gcpPreempted is the path of the value that becomes TRUE when the instance is preempted.
const gcpPreempted = "/computeMetadata/v1/instance/preempted?wait_for_change=true"

// poll returns the notice, or "" if there is none. It may take holdSeconds.
func (g *gcp) poll(ctx context.Context) (string, error) {
	path := fmt.Sprintf("%s&timeout_sec=%d&last_etag=%s", gcpPreempted, holdSeconds, url.QueryEscape(g.etag))
	a, err := g.get(ctx, holdSeconds*time.Second+answerPatience, path, "Metadata-Flavor", "Google")
	switch {
	case err != nil:
		return "", err
	case a.status == http.StatusOK && a.body == "TRUE":
		return "gcp: the instance is being preempted", nil
	case a.status == http.StatusOK && a.body == "FALSE":
		g.etag = a.etag
		return "", nil
	}
	return "", g.unexpected(gcpPreempted, a)
}

// azure asks Azure for scheduled events of type Preempt, which come at least 30 seconds ahead. The
// machines of a scale set see each other's events as well, so only an event that names this machine
// counts.
type azure struct {
	*metadata
	name string // name of this machine; "" until it is known
}

const (
	azureName   = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	azureEvents = "/metadata/scheduledevents?api-version=2020-07-01"
)

// poll returns the notice, or "" if there is none.
func (a *azure) poll(ctx context.Context) (string, error) {
	// The name of the machine does not change, so it is requested once.
	if a.name == "" {
		got, err := a.get(ctx, answerPatience, azureName, "Metadata", "true")
		if err != nil {
			return "", err
		}
		if got.status != http.StatusOK || got.body == "" {
			return "", a.unexpected(azureName, got)
		}
		a.name = got.body
	}
	got, err := a.get(ctx, eventsPatience, azureEvents, "Metadata", "true")
	if err != nil {
		return "", err
	}
	var scheduled struct {
		Events []struct {
			EventType, NotBefore string
			Resources            []string
		}
	}
	if got.status != http.StatusOK || json.Unmarshal([]byte(got.body), &scheduled) != nil {
		return "", a.unexpected(azureEvents, got)
	}
	for _, e := range scheduled.Events {
		// Azure does not keep the case of names.
		mine := slices.ContainsFunc(e.Resources, func(r string) bool { return strings.EqualFold(r, a.name) })
		if e.EventType == "Preempt" && mine {
			return strings.TrimSpace("azure: preempted, not before " + e.NotBefore), nil
		}
	}
	return "", nil
}
