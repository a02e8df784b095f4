package netchaos

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// path describes the links of distant hosts. Each host sends at a limited rate, and its packets arrive after a delay, or never.
type path struct {
	mbit  int
	delay time.Duration // one way
	lose  int           // of so many packets of a host one is lost; 0 if none
}

// pathQueue is the length of a path's queue, as the time to send it. Packets beyond it are dropped.
const pathQueue = 100 * time.Millisecond

// newFar makes n hosts, which end with the test, with the path p between any two hosts.
func newFar(t *testing.T, n int, p path) *lab {
	t.Helper()
	return newUneven(t, slices.Repeat([]path{p}, n)...)
}

// newUneven makes hosts, which end with the test, of each with the path from it to any other. This process forwards the packets itself,
// because many kernels cannot delay packets. It needs /dev/net/tun.
func newUneven(t *testing.T, paths ...path) *lab {
	t.Helper()
	l := newHosts(t, len(paths))
	var moving sync.WaitGroup
	t.Cleanup(moving.Wait)
	var ends []*os.File
	for _, h := range l.hosts {
		end := h.tun(t)
		t.Cleanup(func() { _ = end.Close() }) // also ends the goroutines that read and write end
		h.begin(t)
		ends = append(ends, end)
	}
	for i, from := range ends {
		packets := make(chan packet, 20_000) // more than are in flight on a path
		moving.Go(func() { paths[i].take(from, packets) })
		moving.Go(func() { deliver(ends, packets) })
	}
	return l
}

// tun creates a TUN device, moves it to the host as eth0, and returns the end that this process reads and writes.
func (h *host) tun(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		missing(t, fmt.Sprintf("/dev/net/tun: %v", err))
	}
	request, err := unix.NewIfreq("netchaos%d") // the system puts in a free number
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd) // t.Fatalf reports the first error
		t.Fatalf("make a TUN device: %v", err)
	}
	name := request.Name()
	end := os.NewFile(uintptr(fd), name) // after the ioctl, because before it the poller cannot wait for the device
	command(t, "", "ip", "link", "set", name, "netns", h.namespace)
	command(t, fmt.Sprintf("link set %s name eth0\nlink set eth0 txqueuelen 10000\n", name), "ip", "-n", h.namespace, "-batch", "-")
	return end
}

// packet is a packet in flight.
type packet struct {
	due  time.Time
	data []byte
}

// take reads the packets of a host until its device is closed, and sets when each arrives.
func (p path) take(from *os.File, packets chan<- packet) {
	defer close(packets)
	free := time.Now() // when the link has sent all packets so far
	buffer := make([]byte, 1<<16)
	for sent := 1; ; sent++ {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if free.Sub(now) > pathQueue {
			continue // dropped, as by a full queue
		}
		free = free.Add(time.Duration(8000 * n / p.mbit))
		if p.lose > 0 && sent%p.lose == 0 {
			continue
		}
		select {
		case packets <- packet{free.Add(p.delay), append([]byte(nil), buffer[:n]...)}:
		default: // dropped: the channel is full
		}
	}
}

// deliver passes packets to their destinations when they are due.
func deliver(ends []*os.File, packets <-chan packet) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range packets {
		if wait := time.Until(p.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		if to := destination(p.data); to >= 0 && to < len(ends) {
			_, _ = ends[to].Write(p.data) // if the other host does not accept the packet, it is lost
		}
	}
}

// destination returns the number of the host to which an IPv4 packet is addressed, or -1 for any other packet.
func destination(data []byte) int {
	if len(data) < 20 || data[0]>>4 != 4 {
		return -1
	}
	return int(binary.BigEndian.Uint32(data[16:])&0xff) - 1
}
