package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
)

// roleVariable is the environment variable with the role of the test binary.
const roleVariable = "E2E_ROLE"

// roles returns the programs of the tests, by name.
func roles() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"barrier": barrier, "loop": loop, "deaf": deaf, "half": half, "steps": steps, "disagree": steps,
		"train": elasticLoop, "early": endEarly, "flood": flood, "stall": stall, "polite": polite, "fixed": fixedCosts, "chatty": chatty,
		"handle": handle, "eight": eight, "endless": endless, "mortal": mortal, "forget": forget, "fatal": fatal,
		"replaced": replaced(true), "replaced by value": replaced(false), "subject": subject, "spin": spin,
	}
}

// play runs the program of a role and returns the exit status.
func play(role string) int {
	f, ok := roles()[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		return 2
	}
	if err := f(context.Background()); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// join joins the job, enters the first session, and prints the rank, process ID, peer ID and
// addresses.
func join(ctx context.Context) (*elastic.Group, *elastic.Session, error) {
	g, err := launch.Init(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := g.Sessions().Next(ctx, 0)
	if err != nil {
		return nil, nil, errors.Join(err, g.Close())
	}
	fmt.Printf("joined rank=%d pid=%d id=%s addrs=%v\n", s.Rank, os.Getpid(), g.Self().ID.Short(), g.Self().Addrs)
	return g, s, nil
}

// barrier joins, waits in one barrier and ends.
func barrier(ctx context.Context) error {
	g, s, err := join(ctx)
	if err != nil {
		return err
	}
	return errors.Join(collective.Barrier(ctx, s.Comm), g.Close())
}

// loop adds up values until a call fails or the peer leaves, and checks each sum. It ends at the
// first loss of a peer.
func loop(ctx context.Context) error {
	g, s, err := join(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	v := make([]int64, 1000)
	for i := int64(0); ; i++ {
		for k := range v {
			v[k] = i
		}
		if err := collective.AllReduce(ctx, s.Comm, v, v, collective.Sum[int64]); err != nil {
			return err
		}
		if want := i * int64(s.Comm.Size()); v[0] != want || v[999] != want {
			return fmt.Errorf("sum %d is %d and %d, want %d", i, v[0], v[999], want)
		}
		if i%100 == 99 {
			if leave, err := s.Boundary(ctx); err != nil {
				return err
			} else if leave {
				if s, err = g.Sessions().Next(ctx, s.View.Epoch); err != nil {
					return err
				}
			}
		}
		if i%1000 == 999 {
			fmt.Println("sums", i+1)
		}
	}
}

// polite is a loop that ends with status 0 after SIGTERM. A call may fail before the signal
// arrives, because the other peers get their signals at another time.
func polite(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	err := loop(ctx)
	<-ctx.Done()
	fmt.Println("ended politely after:", err)
	return nil
}

// deaf is a loop that ignores signals and errors.
func deaf(ctx context.Context) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGPIPE)
	fmt.Println("error:", loop(ctx))
	idle()
	return nil
}

// half is a role in which peer 0 joins and the others only print that they run.
func half(ctx context.Context) error {
	if index() == 0 {
		fmt.Println("waiting")
		return loop(ctx)
	}
	fmt.Println("idle")
	idle()
	return nil
}

// idle waits longer than any test. It uses a timer, because with an empty select and no other
// goroutine the runtime reports a deadlock and ends the process.
func idle() { <-time.After(10 * limit) }

// endEarly is a role in which peer 1 ends before it joins, with the status in E2E_STATUS.
func endEarly(ctx context.Context) error {
	if index() == 1 {
		status, err := strconv.Atoi(os.Getenv("E2E_STATUS"))
		if err != nil {
			return err
		}
		os.Exit(status)
	}
	return loop(ctx)
}

// steps reports steps and a result, as a trainer does. In the role disagree the peers' results differ.
func steps(ctx context.Context) error {
	g, s, err := join(ctx)
	if err != nil {
		return err
	}
	for i := int64(1); i <= 20; i++ {
		if err := collective.Barrier(ctx, s.Comm); err != nil {
			return errors.Join(err, g.Close())
		}
		g.Sessions().Emit(s.View.Epoch, i, event.Step{Samples: 100, ShareSamples: 50, Loss: 1 / float64(i), Of: 20})
	}
	sha := "abcd"
	if os.Getenv(roleVariable) == "disagree" {
		sha += strconv.Itoa(index())
	}
	g.Sessions().Emit(s.View.Epoch, 20, event.Done{Steps: 20, Peers: s.Comm.Size(), SHA256: sha})
	return errors.Join(collective.Barrier(ctx, s.Comm), g.Close())
}

// flood is a role in which peer 0 prints without end while the others work.
func flood(ctx context.Context) error {
	g, s, err := join(ctx)
	if err != nil {
		return err
	}
	line := make([]byte, 99)
	for i := range line {
		line[i] = 'x'
	}
	for i := range 200 {
		if s.Rank == 0 {
			for range 1000 {
				fmt.Println(string(line))
			}
		}
		if err := collective.Barrier(ctx, s.Comm); err != nil {
			return errors.Join(err, g.Close())
		}
		if i == 100 {
			fmt.Println("half of it")
		}
	}
	return g.Close()
}

// stall is a role in which the last rank enters a barrier only after it gets SIGUSR1.
func stall(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGUSR1)
	defer stop()
	g, s, err := join(ctx)
	if err != nil {
		return err
	}
	if s.Rank == s.Comm.Size()-1 {
		<-ctx.Done()
	}
	return errors.Join(collective.Barrier(context.WithoutCancel(ctx), s.Comm), g.Close())
}

// progressSuffix ends the path of the file in which each peer of the role chatty records its progress: a dot for each round, and
// a newline at the end. The output of elrun shows no progress while elrun is stopped.
const progressSuffix = ".progress"

// chatty reports 200 steps in each round until the file of finishVariable exists, and then a
// result.
func chatty(ctx context.Context) error {
	g, s, err := join(ctx)
	if err != nil {
		return err
	}
	progress, err := os.OpenFile(os.Getenv(finishVariable)+progressSuffix, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, g.Close())
	}
	defer progress.Close()
	for i := int64(1); ; i++ {
		for range 200 {
			g.Sessions().Emit(s.View.Epoch, i, event.Step{Samples: 100, ShareSamples: 50, Loss: 1 / float64(i)})
		}
		votes := []int64{0}
		if _, err := os.Stat(os.Getenv(finishVariable)); err == nil {
			votes[0] = 1
		}
		_, err := progress.WriteString(".")
		if err := errors.Join(err, collective.AllReduce(ctx, s.Comm, votes, votes, collective.Sum[int64])); err != nil {
			return errors.Join(err, g.Close())
		}
		if votes[0] > 0 {
			g.Sessions().Emit(s.View.Epoch, i, event.Done{Steps: i, Peers: s.Comm.Size(), SHA256: "abcd"})
			_, err := progress.WriteString("\n")
			return errors.Join(err, collective.Barrier(ctx, s.Comm), g.Close())
		}
	}
}

// index returns the local index that elrun has assigned.
func index() int {
	i, err := strconv.Atoi(os.Getenv("ELRUN_INDEX"))
	if err != nil {
		return -1
	}
	return i
}
