package spec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Remote has the options of Run for peers on other hosts. The zero value runs all peers on this host.
type Remote struct {
	// Hosts are the hosts of the peers. Each host gets as many peers as it has slots, up to
	// Options.Peers in all.
	Hosts []Host
	// SSH is the command, with its first arguments, that connects to hosts; "" means ssh.
	SSH string
	// Srun connects to hosts by srun in place of ssh: the hosts belong to the Slurm job in which
	// this process runs.
	Srun bool
	// ConnectTimeout is the time limit for a host to become ready to start peers. The time to copy
	// a program does not count. 0 means 10 s.
	ConnectTimeout time.Duration
	// Copy copies elrun and the program to hosts that lack them. Without Copy, elrun must be in
	// PATH on the host, or have the same path as on this host, and the program is found by its
	// name.
	Copy bool
	// Dir is the working folder of peers on Hosts; "" for the home folder.
	Dir string
	// Detach lets peers on Hosts continue after the death of this launcher.
	Detach bool
}

// defaultConnect is the default of Remote.ConnectTimeout.
const defaultConnect = 10 * time.Second

// check returns an error for invalid values.
func (r *Remote) check() error {
	if len(r.Hosts) == 0 && (r.Copy || r.Detach || r.Dir != "" || r.SSH != "" || r.Srun) {
		return errors.New("there is no list of hosts, but an option that needs one (copy, detach, dir, ssh or srun): name hosts, or leave that option out")
	}
	if r.ConnectTimeout < 0 {
		return fmt.Errorf("connect timeout %v, want 0 or more (0 means %v)", r.ConnectTimeout, defaultConnect)
	}
	return nil
}

// Defaults sets the options that have no value.
func (r *Remote) Defaults() {
	if r.ConnectTimeout == 0 {
		r.ConnectTimeout = defaultConnect
	}
}

// Host is a host on which peers are started through ssh or srun.
type Host struct {
	// Name is the destination for ssh: a name, an IP address, either of them after USER@, or an alias
	// of ~/.ssh/config. The name localhost means this host, without ssh.
	Name string
	// Slots is the number of peers on the host; 0 means one for each core.
	Slots int
	// Site is the name of the host's site; "" means Network.Site.
	Site string
}

// ParseHosts parses a list of hosts in the syntax of mpirun: "a:2,b" gives host a two peers and
// host b one. An IPv6 address is in brackets if a number follows, as in "[::1]:2". The slots of a
// host that is named twice are added.
func ParseHosts(list string) ([]Host, error) {
	var hosts []Host
	for _, word := range strings.Split(list, ",") {
		h, err := parseHost(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("host %q: %w", word, err)
		}
		h.Slots = max(1, h.Slots)
		if hosts, err = AddHost(hosts, h); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// parseHost parses HOST or HOST:N; without N the host has 0 slots. An IPv6 address is in brackets,
// unless it stands alone.
func parseHost(word string) (Host, error) {
	at := strings.Index(word, "@") + 1 // the user is before it
	end := len(word)                   // of the host
	switch rest := word[at:]; {
	case strings.HasPrefix(rest, "["):
		end = at + max(0, strings.LastIndex(rest, "]")) + 1
	case strings.Count(rest, ":") == 1:
		end = at + strings.Index(rest, ":")
	}
	h := Host{Name: word[:end]}
	if address := word[at:end]; strings.ContainsAny(address, "[:]") {
		if inside, ok := strings.CutPrefix(address, "["); ok {
			address = strings.TrimSuffix(inside, "]")
		}
		if ip, err := netip.ParseAddr(address); err != nil || !ip.Is6() {
			return Host{}, fmt.Errorf("%q is not an IPv6 address: want NAME:N or [ADDRESS]:N", word)
		}
		h.Name = word[:at] + address
	}
	if end == len(word) {
		return h, nil
	}
	count, ok := strings.CutPrefix(word[end:], ":")
	if !ok {
		return Host{}, fmt.Errorf("%q: want a colon and the number of peers after the bracket", word)
	}
	var err error
	h.Slots, err = parseSlots(count)
	return h, err
}

// ReadHostfile reads a host file in the syntax of mpirun: a line for each host, with slots=N after
// the name. A host in one line without slots gets one peer for each core; in several lines, as in
// the file of PBS_NODEFILE, one peer for each of these lines. # begins a comment. In addition to
// mpirun's syntax, site=NAME gives the site of the host.
func ReadHostfile(r io.Reader) ([]Host, error) {
	var hosts []Host
	bare := make(map[string]int) // lines without slots, by name of the host
	scan := bufio.NewScanner(r)
	for line := 1; scan.Scan(); line++ {
		text := scan.Text()
		if line == 1 {
			text = strings.TrimPrefix(text, "\ufeff") // the byte-order mark of some editors
		}
		text, _, _ = strings.Cut(text, "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		h, err := parseHost(words[0]) // the short form NAME:N is accepted in a file as well
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		for _, w := range words[1:] {
			if err := h.set(w); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		}
		if h.Slots == 0 {
			bare[h.Name]++
		}
		if hosts, err = AddHost(hosts, h); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	for i, h := range hosts {
		if n := bare[h.Name]; n > 1 || h.Slots > 0 {
			hosts[i].Slots += n
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("it names no host")
	}
	return hosts, nil
}

// set applies a word after the name of a host.
func (h *Host) set(word string) (err error) {
	switch key, value, _ := strings.Cut(word, "="); key {
	case "slots":
		h.Slots, err = parseSlots(value)
		return err
	case "site":
		if h.Site = value; value == "" {
			return fmt.Errorf("%q: want site=NAME", word)
		}
		return ValidSite(value)
	}
	return fmt.Errorf("%q: want nothing, slots=N or site=NAME after a host", word)
}

// parseSlots parses a number of peers, at least one: a host without peers is left out of the list
// instead.
func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxPeers {
		return 0, fmt.Errorf("%q peers, want 1 to %d", text, MaxPeers)
	}
	return n, nil
}

// AddHost adds a host to a list, or adds its slots to the entry with the same name.
func AddHost(hosts []Host, h Host) ([]Host, error) {
	// The name becomes an argument of ssh: a name with a leading dash would be an option, and a
	// ProxyCommand may pass the name to a shell.
	// Reports of other hosts name the host in JSON, which keeps UTF-8 only.
	if h.Name == "" || strings.HasSuffix(h.Name, "@") || !utf8.ValidString(h.Name) || strings.HasPrefix(h.Name, "-") || strings.ContainsAny(h.Name, " \t\r\n'\"\\$`;&|<>()") {
		return nil, fmt.Errorf("host %q: want a name, or USER@NAME", h.Name)
	}
	for i := range hosts {
		if hosts[i].Name == h.Name {
			if hosts[i].Site != h.Site {
				return nil, fmt.Errorf("host %s: it is at site %q here and at %q above: name one", h.Name, h.Site, hosts[i].Site)
			}
			hosts[i].Slots += h.Slots
			return hosts, nil
		}
	}
	return append(hosts, h), nil
}
