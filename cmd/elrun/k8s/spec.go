package k8s

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Spec describes the job of a manifest.
type Spec struct {
	Name      string // name of the job and of all objects
	Namespace string // "" for kubectl's current namespace
	Image     string // image with elrun and the program in its PATH
	Peers     int    // pods at the start, one peer in each
	MinPeers  int    // fewest peers to train with; 0 means 1
	MaxPeers  int    // most peers that the Job is patched to; 0 means Peers

	CPU, Memory string // resources of one pod, as Kubernetes quantities
	// Grace is the time in which a pod leaves the job when it has to end; 0 means 50 s. Kubernetes
	// kills the pod 10 s later.
	Grace time.Duration
	Queue string // Kueue's LocalQueue; "" without Kueue
	// Metrics lets each pod serve the figures of the job to Prometheus, at MetricsPort.
	Metrics bool

	Program []string // the program and its arguments
}

// mostPeers is the maximum number of pods of a job. A larger number is refused as a probable typing
// error, before a cluster tries to start so many pods.
const mostPeers = 4096

// Limits of names, in bytes. The host name of a pod is the Job's name, a dash and an index, and
// is a DNS label of at most 63 bytes. elrun itself limits job names to 40 bytes.
const (
	longestName  = 40
	longestLabel = 63
)

// NewKey returns a random key for Manifest. It joins two random texts of 26 characters, of at least
// 128 random bits each, because --key-file requires at least 32 characters.
func NewKey() string { return rand.Text() + rand.Text() }

// Check returns an error of one line for the first field that is invalid. It checks names as
// Kubernetes does, so that mistakes are found before kubectl apply.
func (s *Spec) Check() error {
	least, most := cmp.Or(s.MinPeers, 1), cmp.Or(s.MaxPeers, s.Peers)
	switch {
	case len(s.Program) == 0:
		return errors.New("no program: name it after --, as in -- mnist --passes 3")
	case s.Peers < 1 || s.Peers > mostPeers:
		return fmt.Errorf("%d peers: want 1 to %d", s.Peers, mostPeers)
	case least < 1 || least > s.Peers:
		return fmt.Errorf("--min-peers %d of %d peers: want 1 to %d", least, s.Peers, s.Peers)
	case most < s.Peers || most > mostPeers:
		return fmt.Errorf("--max %d with %d peers at first: want %d to %d", most, s.Peers, s.Peers, mostPeers)
	case s.Grace < 0:
		return fmt.Errorf("--grace %v: want more than 0", s.Grace)
	case len(s.Image) > 512 || !imageForm().MatchString(s.Image):
		return fmt.Errorf("image %.60q: want a reference as in registry.example/train:1 or train@sha256:DIGEST", s.Image)
	}
	for _, word := range s.Program {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return fmt.Errorf("argument %.60q: want text in UTF-8", word)
		}
	}
	return cmp.Or(checkName("name", s.Name, nameForm(), longestName), checkOptional("namespace", s.Namespace), checkOptional("queue", s.Queue),
		checkQuantity("cpu", s.CPU), checkQuantity("memory", s.Memory))
}

// nameForm matches a DNS label that begins with a letter, as Services require (RFC 1035).
func nameForm() *regexp.Regexp { return regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`) }

// labelForm matches a DNS label (RFC 1123).
func labelForm() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`) }

// imageForm matches an image reference: registry with port, path, tag, digest. All but the path
// are optional.
func imageForm() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
}

// checkName returns an error for a name that does not match form or is too long.
func checkName(what, name string, form *regexp.Regexp, longest int) error {
	if name == "" || len(name) > longest || !form.MatchString(name) {
		return fmt.Errorf("%s %.60q: want 1 to %d of a-z, 0-9 and '-', beginning with a letter and not ending with '-'", what, name, longest)
	}
	return nil
}

// checkOptional returns an error for a name that is neither empty nor a DNS label.
func checkOptional(what, name string) error {
	if name == "" || len(name) <= longestLabel && labelForm().MatchString(name) {
		return nil
	}
	return fmt.Errorf("%s %.60q: want 1 to %d of a-z, 0-9 and '-', neither beginning nor ending with '-'", what, name, longestLabel)
}

// checkQuantity returns an error for a resource quantity that Kubernetes would refuse, or that is
// 0.
func checkQuantity(what, text string) error {
	// This is a part of Kubernetes' syntax: no exponents, and none of the units that are too
	// small or too large for a pod.
	m := regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,9})?)(m|[kMGTP]|[KMGTP]i)?$`).FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s %.60q: want a quantity as in 500m, 2 or 1.5Gi", what, text)
	}
	n, ok := new(big.Rat).SetString(m[1])
	unit := m[2]
	switch {
	case !ok || n.Sign() <= 0:
		return fmt.Errorf("%s %s: want more than 0", what, text)
	case what == "cpu" && unit != "" && unit != "m":
		return fmt.Errorf("cpu %s: want cores, as in 500m or 2", text)
	case what == "memory" && (unit == "m" || strings.Contains(m[1], ".") && unit == ""):
		return fmt.Errorf("memory %s: want whole bytes, as in 512Mi or 2Gi", text)
	}
	return nil
}
