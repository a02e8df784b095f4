package k8s

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

// object is an object of the API, decoded from JSON.
type object = map[string]any

// at follows a path through objects and lists. It returns nil if a step is missing.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(object)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

// text returns the string at a path, or "" if there is none.
func text(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

// number returns the number at a path, or 0 if there is none.
func number(v any, path ...any) int {
	f, _ := at(v, path...).(float64)
	return int(f)
}

// list returns the list at a path.
func list(v any, path ...any) []any {
	l, _ := at(v, path...).([]any)
	return l
}

// client is a client of an API server. It is safe for concurrent use.
type client struct {
	url, token string
	http       *http.Client
}

// newClient returns a client that trusts the certificate in a file.
func newClient(url, token, certificate string) (*client, error) {
	pem, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &client{url: url, token: token, http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}}, nil
}

// statusError is the error for an answer whose HTTP status is not a success.
type statusError struct {
	code int
	text string
}

// Error implements error.
func (s *statusError) Error() string { return fmt.Sprintf("status %d: %s", s.code, s.text) }

// These are the content types of patches.
const (
	mergePatch  = "application/merge-patch+json"
	statusPatch = "application/strategic-merge-patch+json"
	applyPatch  = "application/apply-patch+yaml"
)

// call sends a request with a body of content type kind. A body of type []byte is sent unchanged,
// other bodies as JSON, and nil is no body. call returns the answer and its warnings.
func (c *client) call(ctx context.Context, method, path, kind string, body any) (object, []string, error) {
	b, isText := body.([]byte)
	if !isText && body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return nil, nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(b))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, err
	}
	if res.StatusCode >= 300 {
		return nil, nil, fmt.Errorf("%s %s: %w", method, path, &statusError{res.StatusCode, string(answer)})
	}
	var o object
	_ = json.Unmarshal(answer, &o) // /readyz does not answer with JSON
	return o, res.Header.Values("Warning"), nil
}

// get returns an object or a list.
func (c *client) get(ctx context.Context, path string) (object, error) {
	o, _, err := c.call(ctx, http.MethodGet, path, "", nil)
	return o, err
}

// post creates an object.
func (c *client) post(ctx context.Context, path string, o object) error {
	_, _, err := c.call(ctx, http.MethodPost, path, "application/json", o)
	return err
}

// patch changes an object.
func (c *client) patch(ctx context.Context, path, kind string, o object) error {
	_, _, err := c.call(ctx, http.MethodPatch, path, kind, o)
	return err
}

// remove deletes an object.
func (c *client) remove(ctx context.Context, path string, options object) error {
	_, _, err := c.call(ctx, http.MethodDelete, path, "application/json", options)
	return err
}
