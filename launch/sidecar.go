package launch

import (
	"context"
	"os"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/inpeer"
)

// Sidecar is this process as a peer on behalf of another process, the program, which may be in any
// language. The launcher starts the program, and the program starts the sidecar, with its own
// environment and the open descriptor of ELRUN_FD, which the program then closes.
// docs/internals/sidecar.md has the protocol. Its methods are safe for concurrent use.
type Sidecar struct{ of *inpeer.Sidecar }

// NewSidecar makes this process the sidecar of the running program with the process ID pid. From now on
// the end of the program ends this process at once, with status 1, so that the other peers take it for
// dead. SIGINT has no effect on this process, as a terminal sends it to the program, too.
func NewSidecar(pid int) (*Sidecar, error) {
	s, err := inpeer.NewSidecar(pid)
	if err != nil {
		return nil, err
	}
	return &Sidecar{s}, nil
}

// Watch also learns of the end of the program from a robust lock that the program holds: when the
// program is killed it tells at once, and not when the kernel has freed the memory of the program, which
// takes 65 ms for each GB. The file is a memory file of a page, sealed against changes of its size, that
// the program has mapped as well; the lock is at its beginning (docs/internals/sidecar.md). Watch owns
// the file. It fails if the file is none of these, or if nobody holds the lock. Where the system cannot
// wait for such locks (before Linux 5.16) Watch does nothing.
func (s *Sidecar) Watch(word *os.File) error { return s.of.Watch(word) }

// Map maps the first size bytes of a memory file of the program, until the end of this process. The
// program uses these bytes, and no others. The other peers of the host read vectors there without a copy
// (collective.IsShared), and the memory that collective.Alloc returns lies in the rest of the file, so the file may
// be much longer: memory is taken when it is used. The file stays with the caller. Map reserves the
// memory, so that no later access fails. It refuses a file that is shorter, or not sealed against changes
// of its size. Call it before InitFor, at most once. Where the system has no memory files, the error wraps
// errors.ErrUnsupported.
func (s *Sidecar) Map(file *os.File, size int) ([]byte, error) { return s.of.Map(file, size) }

// Computing reports that the sidecar waits for an answer of the program, until done is called. While the
// program, or a process below it, uses a processor or moves data meanwhile, the others are told that this
// peer is computing, and do not ask it to step down, however long it takes (elastic.Group.Busy). A sidecar
// that never calls Computing counts as waiting since the last step or view of its peer.
func (s *Sidecar) Computing() (done func()) { return s.of.Computing() }

// Busy reports, until done is called, that the program makes no progress for a reason that the program
// knows: the log shows it, and the others do not ask this peer to step down. Of several reasons the last
// one counts. It takes up to a quarter of a second.
func (s *Sidecar) Busy(what string) (done func()) { return s.of.Busy(what) }

// Fail tells the launcher why the program is about to end with another status than 0: the text of an error,
// as in "ValueError: bad sample", of which lines show 100 bytes. The lines about the end of the program have
// the text, among them the last line of the job. The last call before the Close of the group counts.
func (s *Sidecar) Fail(text string) { s.of.Fail(text) }

// Close ends the watch over the program: its end is no death from now on. The sidecar calls Close when
// the program has all that it needs, before the Close of the group. It may be called again.
func (s *Sidecar) Close() { s.of.Close() }

// InitFor is Init for the program of a sidecar. Launcher and people know the program as the peer: its
// process ID is in elrun status, the launcher waits for its end and reports its exit status, and the
// program gets the signals of the launcher and of elrun stop. It passes SIGTERM on to the sidecar, where
// the signal has the effect that it has after Init. When the launcher dies the group leaves, and 1.5 s
// later the sidecar kills the program and ends. A program that is stopped for a second (SIGSTOP) leaves its
// group, so that the others go on, and joins again when it runs. Without a launcher the group has this peer alone.
func InitFor(ctx context.Context, s *Sidecar) (*elastic.Group, error) { return s.of.Init(ctx) }
