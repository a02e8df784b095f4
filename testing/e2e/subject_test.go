package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

// The variables of the role subject. stageVariable has the path of the socket of the stage, elrunVariable what the names of the peers
// of an elrun begin with, and lengthVariable the number of steps.
const (
	stageVariable  = "E2E_STAGE"
	elrunVariable  = "E2E_ELRUN"
	lengthVariable = "E2E_LENGTH"
)

// subjectPace is the least time of a step: the time of a program's own work.
const subjectPace = time.Millisecond

// performer is a subject's connection to its stage.
type performer struct {
	conn    net.Conn
	replies *bufio.Reader
}

// subject is a loop that tells its stage where it is, and gets an order there. It is at these points:
//
//	start    before Init
//	joined   after Init
//	step N   at the beginning of a turn
//	end      after the loop, with its result or its error
//	closed   after Close
//
// With the order go it does what a good program does. See performer.obey and turn for the other orders, but for leak, to end without
// Close, and polite, to end with status 0 if it has left as asked.
func subject(ctx context.Context) error {
	p, err := enterStage()
	if err != nil {
		return err
	}
	steps, err := strconv.ParseInt(os.Getenv(lengthVariable), 10, 64)
	if err != nil {
		return err
	}
	var options []elastic.Option
	switch order, value, _ := strings.Cut(p.at("start"), " "); order {
	case "steps":
		steps, err = strconv.ParseInt(value, 10, 64)
	case "setting":
		options = append(options, elastic.Setting{Name: "kind", Value: value})
	}
	if err != nil {
		return err
	}
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	p.at("joined")
	step, w := int64(0), []float64{0}
	for t := range g.Steps(ctx, elastic.Vectors(&step, &w), steps, options...) {
		if !p.turn(ctx, t, &step, w) {
			break
		}
	}
	err = g.Err()
	if err == nil && w[0] != float64(step) {
		err = fmt.Errorf("the sum of %d steps is %v", step, w[0])
	}
	order := p.at("end")
	if order != "leak" {
		err = errors.Join(err, g.Close())
	}
	p.at("closed")
	if order == "polite" && errors.Is(err, elastic.ErrLeft) {
		return nil
	}
	return err
}

// turn is the body of the loop. It returns false to leave the loop.
func (p *performer) turn(ctx context.Context, t *elastic.Turn, step *int64, w []float64) bool {
	<-time.After(subjectPace)
	sum := true
	switch order := p.at(fmt.Sprint("step ", *step+1)); order {
	case "last":
		t.Stop()
	case "differ": // from the others' states
		w[0]++
	case "twice": // counts the step twice
		*step++
	case "no sum": // forgets the call
		sum = false
	case "no step": // neither fails nor commits
		return true
	case "leave the loop":
		return false
	case "part": // of another number of samples
		t.Part(5)
	case "fail":
		t.Fail(errors.New("as ordered"))
		return true
	}
	t.Part(64)
	one := []float64{1}
	if sum {
		if err := collective.AllReduce(ctx, t.Comm, one, one, collective.Average[float64]); err != nil {
			return true
		}
	}
	w[0] += one[0]
	*step++
	return true
}

// enterStage connects a subject with its stage.
func enterStage() (*performer, error) {
	conn, err := net.Dial("unix", os.Getenv(stageVariable))
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "%s%s %d\n", os.Getenv(elrunVariable), os.Getenv("ELRUN_INDEX"), os.Getpid())
	return &performer{conn, bufio.NewReader(conn)}, err
}

// at says where the subject is, and returns the order of the stage, unless it is one that obey carries out. Without its stage a
// subject behaves well.
func (p *performer) at(point string) (order string) {
	if _, err := fmt.Fprintln(p.conn, point); err != nil {
		return "go"
	}
	line, err := p.replies.ReadString('\n')
	if err != nil {
		return "go"
	}
	order = strings.TrimSpace(line)
	p.obey(order)
	return order
}

// obey carries out the orders that can come at any point.
func (p *performer) obey(order string) {
	word, value, _ := strings.Cut(order, " ")
	switch word {
	case "panic":
		panic("as ordered")
	case "exit":
		status, err := strconv.Atoi(value)
		if err != nil {
			panic(err)
		}
		os.Exit(status)
	}
}
