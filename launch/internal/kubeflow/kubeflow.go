// Package kubeflow reports the progress of a job to Kubeflow Trainer, from a pod of a TrainJob:
//
//	if r := kubeflow.FromEnv(os.Getenv); r != nil {
//		err := r.Post(ctx, progress, time.Now())
//	}
//
// The controller gives each pod the address of a server, a certificate of its authority and a token (KEP-2779 of
// kubeflow/trainer, "Track TrainJob progress and expose training metrics"). The status of the TrainJob then has the
// progress, the time left and the figures of the last step.
package kubeflow

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elrun/elrun/event/timeline"
)

// The variables that the controller sets in each pod.
const (
	envServer = "KUBEFLOW_TRAINER_SERVER_URL"
	envCA     = "KUBEFLOW_TRAINER_SERVER_CA_CERT" // a file
	envToken  = "KUBEFLOW_TRAINER_SERVER_TOKEN"   // a file
)

const (
	// patience bounds a report.
	patience = 5 * time.Second
	// maxFigures bounds the figures in a report, and maxName the bytes of a name.
	maxFigures = 64
	maxName    = 128
	// maxAnswer bounds the bytes of an answer that are read, and maxReason those that are shown.
	maxAnswer = 16 << 10
	maxReason = 100
)

// Reporter reports to the server of a TrainJob. It is safe for concurrent use.
type Reporter struct{ server, ca, token string }

// FromEnv returns the reporter of this pod, with the variables of its environment; nil outside a TrainJob.
func FromEnv(getenv func(string) string) *Reporter {
	if getenv(envServer) == "" {
		return nil
	}
	return &Reporter{getenv(envServer), getenv(envCA), getenv(envToken)}
}

// report is the body of a request.
type report struct {
	Status status `json:"trainerStatus"`
}

// status is the part of a TrainJob's status about the training.
type status struct {
	Percent *int64    `json:"progressPercentage,omitempty"`
	Left    *int64    `json:"estimatedRemainingSeconds,omitempty"`
	Metrics []figure  `json:"metrics,omitempty"`
	Updated time.Time `json:"lastUpdatedTime"`
}

// figure is one figure of a training.
type figure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Post reports the progress of a job at a time. The server wants at most one report in 5 s. Post reads the token anew, as it
// changes. It takes at most 5 s; a failure has no effect on later calls.
func (r *Reporter) Post(ctx context.Context, p timeline.Progress, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := json.Marshal(report{statusOf(p, now)})
	if err != nil {
		return fmt.Errorf("kubeflow: %w", err) // not reached: figures are texts
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("kubeflow: %s: %w", envServer, err)
	}
	token, err := os.ReadFile(r.token)
	if err != nil {
		return fmt.Errorf("kubeflow: %s: %w", envToken, err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	client, err := r.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("kubeflow: report the progress: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("kubeflow: the server of the TrainJob refuses a report: %s%s", answer.Status, reason(answer.Body))
	}
	return nil
}

// statusOf returns the status for the progress of a job.
func statusOf(p timeline.Progress, now time.Time) status {
	s := status{Updated: now.UTC().Truncate(time.Second)}
	if p.Of > 0 {
		percent := 100 * float64(min(p.Step, p.Of)) / float64(p.Of)
		whole := int64(percent)
		s.Percent = &whole
	}
	if p.LeftMS > 0 {
		left := int64(p.LeftMS/1000 + 0.5)
		s.Left = &left
	}
	add := func(name string, x float64) {
		if len(s.Metrics) < maxFigures && len(name) <= maxName {
			s.Metrics = append(s.Metrics, figure{name, strconv.FormatFloat(x, 'g', 6, 64)})
		}
	}
	for _, f := range []struct {
		name string
		x    float64
	}{{"step", float64(p.Step)}, {"loss", p.Loss}, {"learning_rate", p.LR}, {"samples_per_second", p.SamplesPerS}} {
		if f.x != 0 {
			add(f.name, f.x)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Metrics)) {
		add(name, p.Metrics[name])
	}
	return s
}

// client returns a client that trusts the authority of the pod, which may change, and follows no redirection with the token.
func (r *Reporter) client() (*http.Client, error) {
	trust := &tls.Config{}
	if r.ca != "" {
		pem, err := os.ReadFile(r.ca)
		if err != nil {
			return nil, fmt.Errorf("kubeflow: %s: %w", envCA, err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kubeflow: %s: no certificate in %s", envCA, r.ca)
		}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: trust},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it redirects a report") }}, nil
}

// reason returns what the server says of a refusal, "" for nothing.
func reason(body io.Reader) string {
	var says struct {
		Message string `json:"message"`
	}
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil || json.Unmarshal(text, &says) != nil || says.Message == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(says.Message[:min(len(says.Message), maxReason)], "")
}
