package elastic

import (
	"fmt"

	"github.com/elrun/elrun/loadbal"
)

// Option changes how Group.Steps works: a Setting or a Balance. All members give the same.
type Option interface{ apply(*stepOptions) }

// Balance is the name of a policy of package loadbal, by which Turn.Part cuts steps; see
// loadbal.Names. The default follows measured speeds.
type Balance string

// Equal gives all members the same number of samples.
const Equal Balance = "equal"

// stepOptions are what the options of a call have said.
type stepOptions struct {
	settings []Setting
	balance  Balance
}

func (s Setting) apply(o *stepOptions) { o.settings = append(o.settings, s) }

func (b Balance) apply(o *stepOptions) { o.balance = b }

// check returns what is wrong with the options.
func (o *stepOptions) check() error {
	if _, err := loadbal.New(string(o.balance)); err != nil {
		return err
	}
	for _, s := range o.settings {
		if s.Name == "" {
			return fmt.Errorf("the setting with the value %q has no name", s.Value)
		}
	}
	return nil
}
