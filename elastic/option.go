package elastic

import (
	"fmt"

	"github.com/elrun/elrun/loadbal"
)

// Option changes the behaviour of Group.Steps: it is a Setting or a Balance. All members pass the
// same options.
type Option interface{ apply(*stepOptions) }

// Balance is the name of a policy of package loadbal; see loadbal.Names. Turn.Part divides steps by
// this policy. The default policy follows measured speeds.
type Balance string

// Equal gives all members the same number of samples.
const Equal Balance = "equal"

// stepOptions collects the options of a call of Steps.
type stepOptions struct {
	settings []Setting
	balance  Balance
}

// apply adds the setting.
func (s Setting) apply(o *stepOptions) { o.settings = append(o.settings, s) }

// apply sets the policy.
func (b Balance) apply(o *stepOptions) { o.balance = b }

// check returns an error for options that cannot be used.
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
