package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/transport/ticket"
)

// attempts calls retryJoin with attempts of the duration lasts, which end with the errors in ends
// in turn, and then always with the last of these errors. A signal comes after the duration until.
// attempts returns the start times of the attempts.
func attempts(t *testing.T, until time.Duration, lasts time.Duration, ends ...error) (at []time.Duration, err error) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 1)
		begun := time.Now()
		stop := time.AfterFunc(until, func() { signals <- syscall.SIGTERM })
		defer stop.Stop()
		err = retryJoin(t.Context(), &terminal{stderr: null, signals: signals}, func(context.Context) error {
			at = append(at, time.Since(begun))
			<-time.After(lasts)
			end := ends[0]
			if len(ends) > 1 {
				ends = ends[1:]
			}
			return end
		})
	})
	return at, err
}

// Pauses double from 5 s to 5 min. After a job they restart at 5 s.
func TestForever(t *testing.T) {
	no := errors.New("no such job")
	at, err := attempts(t, 25*time.Minute, 0, no, no, nil, no)
	want := []time.Duration{0, 5, 15, 20, 30, 50, 90, 170, 330, 630, 930, 1230}
	for i := range want {
		want[i] *= time.Second
	}
	if s := exitStatus(0); !slices.Equal(at, want) || !errors.As(err, &s) || s != 143 {
		t.Errorf("attempts at %v, want %v; %v", at, want, err)
	}
}

// An attempt that lasted longer than longestPause resets the pause, whatever its error.
func TestForeverAfterLongJob(t *testing.T) {
	at, _ := attempts(t, 25*time.Minute, 10*time.Minute, exitStatus(statusFailed))
	if want := []time.Duration{0, 605 * time.Second, 1210 * time.Second}; !slices.Equal(at, want) {
		t.Errorf("attempts at %v, want %v", at, want)
	}
}

func TestForeverHopeless(t *testing.T) {
	for _, hopeless := range []error{exitStatus(130), exitStatus(statusUsage), launch.ErrOptions,
		fmt.Errorf("bad ticket: %w", ticket.ErrExpired), fmt.Errorf("bad ticket: %w", ticket.ErrFormat)} {
		if at, err := attempts(t, time.Hour, 0, hopeless); len(at) != 1 || !errors.Is(err, hopeless) {
			t.Errorf("%v: %d attempts, %v", hopeless, len(at), err)
		}
	}
}
