package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/elrun/elrun/internal/private"
)

// claimName is the file that says to whom a folder belongs. Its content is an Owner as JSON.
//
// All peers of the job that writes to the folder hold a shared lock on the file, which the kernel
// releases when they die. Only a holder of the exclusive lock, beside whom no job uses the folder,
// changes the content. So a peer that finds its own job in the file while it holds the shared lock
// knows that no other job writes. The file is never deleted.
const claimName = ".elrun.owner"

// maxOwner bounds the content of the file, in bytes.
const maxOwner = 4096

// Owner is a job that writes checkpoints to a folder.
type Owner struct {
	Job string `json:"job"` // ID of the job, equal at all its peers
	Run string `json:"run"` // ID of the run, which a resumed job has from its checkpoint
	// Name describes the job to people who find its folder in use.
	Name string `json:"name"`
}

// Claim is the right of a job to write to a folder. It ends with Close or with the process.
type Claim struct{ file *os.File }

// Acquire lets a peer of a job write to dir, which it creates if necessary. The error wraps
// ErrForeign if another job that still runs writes to dir, or if dir has checkpoints and none of them
// is of o.Run or of the other given runs. Once a job owns a folder, Acquire succeeds at its other
// peers. On a file system without locks only the checkpoints are checked. The caller closes the
// claim after its last write.
func Acquire(dir string, o Owner, runs ...string) (*Claim, error) {
	if err := private.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("checkpoint: acquire: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, claimName), os.O_RDWR|os.O_CREATE, private.File)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: acquire: %w", err)
	}
	if err := acquire(dir, file, o, append(runs, o.Run)); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint: acquire: %w", err), file.Close())
	}
	return &Claim{file}, nil
}

// acquire locks the file of a claim and checks its owner.
func acquire(dir string, file *os.File, o Owner, runs []string) error {
	err := flock(file, tryExclusive)
	if errors.Is(err, errors.ErrUnsupported) {
		return foreign(dir, runs)
	}
	if err == nil { // no job uses the folder
		if err := takeOver(dir, file, o, runs); err != nil {
			return err
		}
	}
	// Between the exclusive lock and the shared one another job may take the folder.
	if err := flock(file, shared); err != nil {
		return err
	}
	now, err := ownerIn(file)
	if err != nil || now.Job == o.Job {
		return err
	}
	// If the owner does not run, another peer has found foreign checkpoints.
	if err := foreign(dir, runs); err != nil {
		return err
	}
	return fmt.Errorf("%s %w, which is still running (%s): write to another folder, or wait for its end", dir, ErrForeign, now.Name)
}

// takeOver makes o the owner of a folder that no job uses, unless its checkpoints forbid it.
func takeOver(dir string, file *os.File, o Owner, runs []string) error {
	if now, err := ownerIn(file); err != nil || now.Job == o.Job {
		return err
	}
	if err := foreign(dir, runs); err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt(text, 0)
	}
	return err
}

// ownerIn reads the owner of a folder. A file that no job has completed has the zero owner.
func ownerIn(file *os.File) (o Owner, err error) {
	b, err := io.ReadAll(io.NewSectionReader(file, 0, maxOwner))
	if err != nil {
		return o, err
	}
	if json.Unmarshal(b, &o) != nil {
		return Owner{}, nil
	}
	return o, nil
}

// foreign returns ErrForeign if a folder has checkpoints, and none of them is of the given runs. A
// checkpoint whose header cannot be read belongs to no run.
func foreign(dir string, runs []string) error {
	all, err := list(dir)
	if err != nil {
		return err
	}
	var other *found
	for i, f := range all {
		switch {
		case f.err != nil:
		case slices.Contains(runs, f.header.Run):
			return nil
		case other == nil:
			other = &all[i]
		}
	}
	if other == nil {
		return nil
	}
	return fmt.Errorf("%s %w (%s), which saved step %d: write to another folder, or resume that run",
		dir, ErrForeign, cmp.Or(other.header.Run, "without an ID"), other.step)
}

// OwnerOf returns the owner of a folder, also if its job has ended: the zero Owner if there is none.
func OwnerOf(dir string) Owner {
	file, _, err := openRegular(filepath.Join(dir, claimName))
	if err != nil {
		return Owner{}
	}
	defer file.Close()
	o, _ := ownerIn(file) // a file that cannot be read names no owner
	return o
}

// Close gives up the claim.
func (c *Claim) Close() error { return c.file.Close() }
