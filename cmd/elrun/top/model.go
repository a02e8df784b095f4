package top

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// scene is what is in view.
type scene int

// The screens.
const (
	jobsScreen scene = iota
	jobScreen        // a job with its peers
	peerScreen
	hostsScreen
	eventsScreen
	eventScreen
	linksScreen
	commandsScreen
	helpScreen
)

// Kind is what a key asks its caller to do.
type Kind int

// The kinds of an Action.
const (
	None    Kind = iota
	Quit         // end
	Suspend      // stop this process until it is continued
	Open         // watch the job of the Action
	List         // list the jobs
)

// Action is what a key asks its caller to do; what concerns only the screen the Model has done.
type Action struct {
	Kind Kind
	Job  string
}

// Model is what is shown. It is not safe for concurrent use. Make one with New.
type Model struct {
	// ASCII is for terminals that may not have other characters.
	ASCII bool
	// Still is for a frame that nobody can act on: it has no line about keys, and only the lines that it needs.
	Still bool

	zone   *time.Location
	place  scene
	back   []scene // from which the present one was reached
	chosen map[scene]string
	sorted map[scene]int
	found  map[scene]string // texts to find
	typing bool             // the text to find
	scroll int              // first line in view of a screen of text

	list   []launch.Status
	listed bool   // list is known
	many   bool   // the list of jobs can be reached
	lost   string // why the list is not known

	job      string // that is open
	snapshot timeline.Snapshot
	known    bool      // snapshot is
	at, now  time.Time // of the snapshot, and the latest time known
	end      *End
	past     history
}

// End tells how a job has ended, as far as it is known.
type End struct {
	Ended  *launch.Ended // nil if unknown
	Reason string        // why nothing is known of the job any more
}

// New returns a Model that shows the list of jobs, with times of day in a zone.
func New(zone *time.Location) *Model {
	return &Model{zone: zone, chosen: make(map[scene]string), sorted: make(map[scene]int), found: make(map[scene]string), past: make(history)}
}

// Jobs tells which jobs there are. reason tells why they are not known, if it is not "".
func (m *Model) Jobs(list []launch.Status, reason string) {
	m.many, m.lost = true, reason
	if reason == "" {
		m.list, m.listed = list, true
	}
}

// Open shows a job. What is known of another one is forgotten.
func (m *Model) Open(job string) {
	m.job, m.known, m.end, m.past = job, false, nil, make(history)
	m.place, m.back, m.scroll, m.typing = jobScreen, nil, 0, false
	for _, p := range []scene{jobScreen, hostsScreen, eventsScreen, linksScreen} {
		delete(m.chosen, p)
		delete(m.found, p)
	}
}

// Show tells a snapshot of the open job, which came at a time. The caller must not change it.
func (m *Model) Show(s timeline.Snapshot, at time.Time) {
	m.snapshot, m.known, m.at, m.now = s, true, at, at
	m.past.add(s.Peers)
}

// Tick tells the time.
func (m *Model) Tick(now time.Time) { m.now = now }

// End tells that no further snapshot of the open job comes.
func (m *Model) End(e End) { m.end = &e }

// Press handles a key, by its name in package bubbletea. A printable character is its own name.
func (m *Model) Press(key string) Action {
	switch {
	case key == "ctrl+c":
		return Action{Kind: Quit}
	case key == "ctrl+z":
		return Action{Kind: Suspend}
	case m.typing:
		m.typed(key)
		return Action{}
	}
	switch key {
	case "q":
		return Action{Kind: Quit}
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-10)
	case "pgdown", "space", " ":
		m.move(10)
	case "home", "g":
		m.move(-1 << 20)
	case "end", "G":
		m.move(1 << 20)
	case "s":
		m.resort()
	case "/":
		if _, ok := m.rows(m.place); ok {
			m.typing = true
		}
	case "enter":
		return m.enter()
	case "esc", "left", "backspace":
		return m.leave()
	default:
		m.turn(key)
	}
	return Action{}
}

// typed handles a key while the text to find is typed.
func (m *Model) typed(key string) {
	text := m.found[m.place]
	switch {
	case key == "enter":
		m.typing = false
	case key == "esc":
		m.typing = false
		delete(m.found, m.place)
	case key == "backspace":
		_, n := utf8.DecodeLastRuneInString(text)
		m.found[m.place] = text[:len(text)-n]
	case key == "space":
		m.found[m.place] += " "
	case utf8.RuneCountInString(key) == 1 && len(text) < 100:
		m.found[m.place] += key
	}
}

// turn goes to the screen of a key, or back if that is in view.
func (m *Model) turn(key string) {
	to, ok := map[string]scene{"h": hostsScreen, "e": eventsScreen, "l": linksScreen, "c": commandsScreen, "?": helpScreen}[key]
	switch {
	case !ok || m.place == jobsScreen && to != helpScreen:
	case to == m.place:
		m.leave()
	default:
		m.visit(to)
	}
}

// visit goes to a screen.
func (m *Model) visit(to scene) {
	// A screen that is among those before is left with all after it, so that the way back stays short.
	if i := slices.Index(m.back, to); i >= 0 {
		m.back = m.back[:i]
	} else {
		m.back = append(m.back, m.place)
	}
	m.place, m.scroll = to, 0
}

// leave takes away the text to find, or else goes back.
func (m *Model) leave() Action {
	switch n := len(m.back); {
	case m.found[m.place] != "":
		delete(m.found, m.place)
	case n > 0:
		m.place, m.back, m.scroll = m.back[n-1], m.back[:n-1], 0
	case m.place == jobScreen && m.many:
		m.place, m.job = jobsScreen, ""
		return Action{Kind: List}
	}
	return Action{}
}

// enter opens the chosen row.
func (m *Model) enter() Action {
	t, ok := m.rows(m.place)
	if !ok || len(t.rows) == 0 {
		return Action{}
	}
	key := t.rows[t.find(m.chosen[m.place])].key
	m.chosen[m.place] = key
	switch m.place {
	case jobsScreen:
		return Action{Open, key}
	case jobScreen:
		m.visit(peerScreen)
	case hostsScreen: // its peers
		m.visit(jobScreen)
		_, name, _ := strings.Cut(key, " ")
		m.found[jobScreen] = word(name).text
	case eventsScreen:
		m.visit(eventScreen)
	}
	return Action{}
}

// move chooses a row that is n rows further, or moves a text.
func (m *Model) move(n int) {
	t, ok := m.rows(m.place)
	switch {
	case !ok:
		m.scroll = max(0, m.scroll+n)
	case len(t.rows) > 0:
		at := t.find(m.chosen[m.place]) + n
		m.chosen[m.place] = t.rows[min(max(0, at), len(t.rows)-1)].key
	}
}

// resort sorts the rows by the next column of those that a narrow screen shows, too.
func (m *Model) resort() {
	t, ok := m.rows(m.place)
	if !ok {
		return
	}
	n := len(t.columns)
	for n > 1 && t.columns[n-1].keep >= extra {
		n--
	}
	m.sorted[m.place] = 1 + (t.sorted+1)%n
}

// rows returns the table of a screen, sorted, with the rows that fit the text to find. It returns false if the screen has none.
func (m *Model) rows(place scene) (table, bool) {
	var t table
	switch place {
	case jobsScreen:
		t = jobs(m.list).table()
	case jobScreen:
		t = peers{m.snapshot}.table()
	case hostsScreen:
		t = hosts{m.snapshot}.table()
	case eventsScreen:
		t = events{m.snapshot, m.zone}.table()
	case linksScreen:
		t = links{m.snapshot}.table()
	default:
		return table{}, false
	}
	if by := m.sorted[place]; by > 0 { // 0 is the order that the table begins with
		t.sorted = min(by, len(t.columns)) - 1
	}
	t.sort(t.sorted)
	t.filter(m.found[place])
	return t, true
}

// Frame returns what a screen of a width and a height in cells shows.
func (m *Model) Frame(width, height int) Frame {
	if width <= 0 || height <= 0 {
		return nil
	}
	d := drawing{m, width, height}
	foot := Frame{}
	if !m.Still && height >= 4 {
		foot = Frame{d.keys()}
	}
	d.height -= len(foot)
	f := append(d.heads(), d.body()...)
	f = f[:min(len(f), d.height)]
	for !m.Still && len(f) < d.height {
		f = append(f, nil)
	}
	f = append(f, foot...)
	for i, l := range f {
		f[i] = l.fit(width)
	}
	return f
}
