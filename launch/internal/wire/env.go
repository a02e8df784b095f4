package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/elrun/elrun/launch/spec"
)

// Names of the environment variables. doc.go explains them.
const (
	EnvJob       = "ELRUN_JOB"
	envIndex     = "ELRUN_INDEX"
	envPeers     = "ELRUN_NP"
	EnvFD        = "ELRUN_FD"
	envTransport = "ELRUN_TRANSPORT"
	envEncrypt   = "ELRUN_ENCRYPT"
	envRelay     = "ELRUN_RELAY"
	envListen    = "ELRUN_LISTEN"
	envNode      = "ELRUN_NODE" // set for services and tasks of a Program only
	envSite      = "ELRUN_SITE"
	envGrace     = "ELRUN_GRACE"
)

// Environment is the information that a launcher passes to a process through environment variables:
// everything that the process needs before its hello. The start order has all other information.
type Environment struct {
	Job string // name of the job
	// Index is the local index of the peer at its launcher.
	Index int
	Peers int // number of peers that the launcher started
	FD    int // descriptor of the socket to the launcher
	// Transport, Encrypt, Relay and Listen have the values of the fields of Network of the same names.
	Transport string
	Encrypt   string
	Relay     string
	Listen    string
	Node      string // "" for a peer
	Site      string // "" if unknown
	Grace     time.Duration
}

// List returns the variables in the form NAME=VALUE, as os/exec takes them.
func (e Environment) List() []string {
	list := []string{
		EnvJob + "=" + e.Job,
		envIndex + "=" + strconv.Itoa(e.Index),
		envPeers + "=" + strconv.Itoa(e.Peers),
		EnvFD + "=" + strconv.Itoa(e.FD),
		envTransport + "=" + e.Transport,
		envEncrypt + "=" + e.Encrypt,
		envRelay + "=" + e.Relay,
		envListen + "=" + e.Listen,
	}
	if e.Node != "" {
		list = append(list, envNode+"="+e.Node)
	}
	if e.Site != "" {
		list = append(list, envSite+"="+e.Site)
	}
	if e.Grace != 0 {
		list = append(list, envGrace+"="+e.Grace.String())
	}
	return list
}

// ParseEnvironment is the inverse of list. It reports false if no variable is set. An incomplete
// or invalid environment is an error: a peer that went on alone would train another model than the
// user asked for.
func ParseEnvironment(lookup func(string) (string, bool)) (Environment, bool, error) {
	values := map[string]string{}
	var missing []string
	for _, name := range []string{EnvJob, envIndex, envPeers, EnvFD, envTransport, envEncrypt, envRelay, envListen} {
		v, ok := lookup(name)
		if !ok {
			missing = append(missing, name)
		}
		values[name] = v
	}
	// No variable is set: the process was not started by a launcher.
	if len(values) == len(missing) {
		return Environment{}, false, nil
	}
	if len(missing) > 0 {
		return Environment{}, false, fmt.Errorf("launch: environment: %s not set, though other ELRUN_ variables are: start the program by elrun, or unset them all",
			strings.Join(missing, ", "))
	}
	e := Environment{Job: values[EnvJob], Transport: values[envTransport], Encrypt: values[envEncrypt],
		Relay: values[envRelay], Listen: values[envListen]}
	var errs [5]error
	// Services and tasks have indices after the indices of all peers.
	e.Peers, errs[0] = parseInt(values, envPeers, 1, spec.MaxPeers)
	if e.Node, _ = lookup(envNode); e.Node == "" {
		e.Index, errs[1] = parseInt(values, envIndex, 0, max(0, e.Peers-1))
	} else {
		e.Index, errs[1] = parseInt(values, envIndex, spec.MaxPeers, spec.MaxPeers+spec.MaxNodes-1)
	}
	e.FD, errs[2] = parseInt(values, EnvFD, 3, 1<<20)
	_, listenErr := spec.ParseListen(e.Listen)
	e.Site, _ = lookup(envSite)
	if grace, ok := lookup(envGrace); ok {
		if e.Grace, errs[4] = time.ParseDuration(grace); errs[4] != nil || e.Grace <= 0 {
			errs[4] = fmt.Errorf("%s=%q: want a time of more than 0, as in 30s", envGrace, grace)
		}
	}
	errs[3] = errors.Join(spec.ValidJob(e.Job), spec.ValidSite(e.Site), spec.ValidTransport(e.Transport), spec.ValidEncrypt(e.Encrypt), spec.ValidRelay(e.Relay), listenErr)
	if err := errors.Join(errs[:]...); err != nil {
		return Environment{}, false, fmt.Errorf("launch: environment: %w", err)
	}
	return e, true, nil
}

// parseInt parses the named value, which must lie in [lo, hi].
func parseInt(values map[string]string, name string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(values[name])
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%s=%q: want a number from %d to %d", name, values[name], lo, hi)
	}
	return n, nil
}
