package launch

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/proc"
)

// wordVariable is the environment variable that makes the test binary a program that says hello, and how it ends.
const wordVariable = "LAUNCH_TEST_WORD"

// playWord says hello by the ID in the first argument, prints whether it is watched, and ends in the given way.
func playWord(end string) error {
	a, err := openAgent(proc.ChildFD)
	if err != nil {
		return err
	}
	order, err := a.hello(context.Background(), "job", elastic.Member{ID: elastic.ID(os.Args[1])})
	if err != nil {
		return err
	}
	fmt.Println("watched", order.Watched)
	switch end {
	case "exec":
		return syscall.Exec("/bin/sleep", []string{"sleep", "300"}, os.Environ())
	case "close":
		return a.Close()
	}
	<-a.launcherGone.Done()
	return nil
}
