package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names of the environment variables. doc.go explains them.
const (
	envJob       = "ELRUN_JOB"
	envIndex     = "ELRUN_INDEX"
	envPeers     = "ELRUN_NP"
	envFD        = "ELRUN_FD"
	envTransport = "ELRUN_TRANSPORT"
	envEncrypt   = "ELRUN_ENCRYPT"
	envRelay     = "ELRUN_RELAY"
	envListen    = "ELRUN_LISTEN"
	envNode      = "ELRUN_NODE" // set for services and tasks of a Program only
	envSite      = "ELRUN_SITE"
	envGrace     = "ELRUN_GRACE"
)

const (
	maxPeers   = 4096 // processes of one launcher
	maxSite    = 32   // bytes of the name of a site
	maxJobName = 40   // bytes; the name is part of a socket address of at most 104 bytes
)

// environment is the information that a launcher passes to a process through environment variables:
// everything that the process needs before its hello. The start order has all other information.
type environment struct {
	job string // name of the job
	// index is the local index of the peer at its launcher.
	index int
	peers int // number of peers that the launcher started
	fd    int // descriptor of the socket to the launcher
	// transport, encrypt, relay and listen have the values of the fields of Network of the same names.
	transport string
	encrypt   string
	relay     string
	listen    string
	node      string // "" for a peer
	site      string // "" if unknown
	grace     time.Duration
}

// list returns the variables in the form NAME=VALUE, as os/exec takes them.
func (e environment) list() []string {
	list := []string{
		envJob + "=" + e.job,
		envIndex + "=" + strconv.Itoa(e.index),
		envPeers + "=" + strconv.Itoa(e.peers),
		envFD + "=" + strconv.Itoa(e.fd),
		envTransport + "=" + e.transport,
		envEncrypt + "=" + e.encrypt,
		envRelay + "=" + e.relay,
		envListen + "=" + e.listen,
	}
	if e.node != "" {
		list = append(list, envNode+"="+e.node)
	}
	if e.site != "" {
		list = append(list, envSite+"="+e.site)
	}
	if e.grace != 0 {
		list = append(list, envGrace+"="+e.grace.String())
	}
	return list
}

// parseEnvironment is the inverse of list. It reports false if no variable is set. An incomplete
// or invalid environment is an error: a peer that went on alone would train another model than the
// user asked for.
func parseEnvironment(lookup func(string) (string, bool)) (environment, bool, error) {
	values := map[string]string{}
	var missing []string
	for _, name := range []string{envJob, envIndex, envPeers, envFD, envTransport, envEncrypt, envRelay, envListen} {
		v, ok := lookup(name)
		if !ok {
			missing = append(missing, name)
		}
		values[name] = v
	}
	// No variable is set: the process was not started by a launcher.
	if len(values) == len(missing) {
		return environment{}, false, nil
	}
	if len(missing) > 0 {
		return environment{}, false, fmt.Errorf("launch: environment: %s not set, though other ELRUN_ variables are: start the program by elrun, or unset them all",
			strings.Join(missing, ", "))
	}
	e := environment{job: values[envJob], transport: values[envTransport], encrypt: values[envEncrypt],
		relay: values[envRelay], listen: values[envListen]}
	var errs [5]error
	// Services and tasks have indices after the indices of all peers.
	e.peers, errs[0] = parseInt(values, envPeers, 1, maxPeers)
	if e.node, _ = lookup(envNode); e.node == "" {
		e.index, errs[1] = parseInt(values, envIndex, 0, max(0, e.peers-1))
	} else {
		e.index, errs[1] = parseInt(values, envIndex, maxPeers, maxPeers+maxNodes-1)
	}
	e.fd, errs[2] = parseInt(values, envFD, 3, 1<<20)
	_, listenErr := parseListen(e.listen)
	e.site, _ = lookup(envSite)
	if grace, ok := lookup(envGrace); ok {
		if e.grace, errs[4] = time.ParseDuration(grace); errs[4] != nil || e.grace <= 0 {
			errs[4] = fmt.Errorf("%s=%q: want a time of more than 0, as in 30s", envGrace, grace)
		}
	}
	errs[3] = errors.Join(validJob(e.job), validSite(e.site), validTransport(e.transport), validEncrypt(e.encrypt), validRelay(e.relay), listenErr)
	if err := errors.Join(errs[:]...); err != nil {
		return environment{}, false, fmt.Errorf("launch: environment: %w", err)
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

// validJob returns an error for a name that is not valid as a part of a socket address, a file
// name and a shell word.
func validJob(name string) error {
	if name == "" || len(name) > maxJobName {
		return fmt.Errorf("job name %q: want 1 to %d characters", name, maxJobName)
	}
	for i, r := range name {
		if !nameRune(r) || i == 0 && (r == '-' || r == '.') {
			return fmt.Errorf("job name %q: want letters, digits, '.', '_' and '-', beginning with neither '-' nor '.'", name)
		}
	}
	return nil
}

// validSite returns an error for an invalid or too long name of a site. The name "" is valid: no
// site.
func validSite(name string) error {
	if len(name) > maxSite || strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) }) {
		return fmt.Errorf("site %q: want up to %d letters, digits, '.', '_' and '-'", name[:min(len(name), maxSite)], maxSite)
	}
	return nil
}

// nameRune reports whether r is allowed in the name of a job or a site.
func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

// jobName returns the name of a job: the base name of the program and a suffix, which
// distinguishes jobs of the same program.
func jobName(program, suffix string) string {
	base := strings.Map(func(r rune) rune {
		if nameRune(r) {
			return r
		}
		return '_'
	}, filepath.Base(program))
	base = strings.TrimLeft(base, "-.")
	if base == "" {
		base = "job"
	}
	return base[:min(len(base), maxJobName-1-len(suffix))] + "-" + suffix
}

// Launched reports whether a launcher started this process. Init then joins a job; otherwise it
// returns a group of one.
func Launched() bool {
	_, ok := os.LookupEnv(envJob)
	return ok
}
