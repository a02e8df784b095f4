package wire

import (
	"fmt"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event/timeline"
)

// Inquiry asks for a page of what a launcher knows of its peers (timeline.Part). A launcher asks its peer, which asks the
// member Of, which asks its own launcher, without Of. The answer goes back the same way.
type Inquiry struct {
	Seq  int        `json:"seq"` // of the sender; the Figures have it
	Of   elastic.ID `json:"of,omitempty"`
	From int        `json:"from,omitempty"` // where the page begins
}

// check returns an error for an inquiry that no correct process sends.
func (i Inquiry) check() error {
	if i.Seq <= 0 || i.From < 0 {
		return fmt.Errorf("inquiry %d from %d: want numbers that are not negative", i.Seq, i.From)
	}
	return nil
}

// Figures is the answer to the Inquiry with the same Seq: a page as timeline.EncodePart makes it, empty if
// there is none.
type Figures struct {
	Seq  int    `json:"seq"`
	Page []byte `json:"page,omitempty"`
}

// check returns an error for figures that no correct process sends.
func (f Figures) check() error {
	if f.Seq <= 0 || len(f.Page) > timeline.MaxPart {
		return fmt.Errorf("figures %d of %d bytes: want at most %d bytes", f.Seq, len(f.Page), timeline.MaxPart)
	}
	return nil
}
