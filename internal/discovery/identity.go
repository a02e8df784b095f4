package discovery

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/libp2p/go-libp2p/core/crypto"

	"github.com/elrun/elrun/internal/private"
)

// identity reads the key of a bootstrap node from a file, and makes the file if there is none. So
// the node has the same ID after a restart: its addresses contain the ID.
func identity(path string) (crypto.PrivKey, error) {
	seed, err := readSeed(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeSeed(path); err == nil {
			seed, err = readSeed(path) // another node may have been faster: then this is the seed of that node
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		return nil, fmt.Errorf("identity %s: %w", path, err)
	}
	return key, nil
}

// readSeed reads a node's seed from the file at path. It refuses a file that others can read,
// because they could impersonate the node.
func readSeed(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// O_NONBLOCK above and this check keep a FIFO from blocking the node.
	if !info.Mode().IsRegular() || info.Mode().Perm()&^private.File != 0 {
		return nil, fmt.Errorf("identity %s: not a private file: chmod 600 it, or name another one", path)
	}
	// Room for the seed in hexadecimal and a line end, which may be CR LF.
	text := make([]byte, 2*ed25519.SeedSize+2)
	n, _ := f.Read(text) // with an error there are too few bytes, which is checked below
	seed, err := hex.DecodeString(strings.TrimSpace(string(text[:n])))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("identity %s: not the key of a bootstrap node: name another file, or remove this one", path)
	}
	return seed, nil
}

// makeSeed writes a new random seed to the file at path. The file appears with its whole content or
// not at all. If the file exists already, makeSeed does not change it and returns no error.
func makeSeed(path string) error {
	if err := private.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-") // mode 0600, as private.File has it
	if err != nil {
		return err
	}
	// The link at the end is a second name for the same file, so this name is removed in any case.
	defer os.Remove(f.Name())
	seed := make([]byte, ed25519.SeedSize)
	_, err = rand.Read(seed)
	if err == nil {
		_, err = fmt.Fprintln(f, hex.EncodeToString(seed))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// A link fails if the file exists, so a concurrent start cannot replace the seed.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
