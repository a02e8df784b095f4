package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The path with a delay: 500 Mbit/s and 50 ms each way.
const (
	delayRate  = 500e6 / 8 // bytes of packets a second
	delayOne   = 50 * time.Millisecond
	delayQueue = 100 * time.Millisecond // what the path holds before it drops packets
	delayBytes = 256 << 20
)

// relay joins two hosts by a program that reads the packets of each and hands them to the
// other one later. The kernels that have no netem can do this.
type relay struct {
	lab    *lab
	ends   []*os.File // TUN devices
	moving sync.WaitGroup
}

// newRelay makes the two hosts and begins to move packets.
func newRelay(ctx context.Context) (*relay, error) {
	prefix := fmt.Sprintf("bench-peers-%d-far-", os.Getpid())
	r := &relay{lab: &lab{hub: prefix + "hub"}}
	for i := range 2 {
		r.lab.hosts = append(r.lab.hosts, fmt.Sprint(prefix, i))
		end, err := newEnd(ctx, r.lab.hosts[i], i)
		if err != nil {
			r.close()
			return nil, err
		}
		r.ends = append(r.ends, end)
	}
	for i, from := range r.ends {
		to := r.ends[1-i]
		packets := make(chan packet, int(delayRate*(delayOne+delayQueue).Seconds()/60)) // even if all are short
		r.moving.Add(2)
		go func() { defer r.moving.Done(); take(from, packets) }()
		go func() { defer r.moving.Done(); hand(to, packets) }()
	}
	return r, nil
}

// close ends the hosts. Reads and writes of the devices end with them.
func (r *relay) close() {
	for _, end := range r.ends {
		_ = end.Close() // nothing is written any more that matters
	}
	r.moving.Wait()
	r.lab.remove()
}

// newEnd makes a host whose only way out is a device that this program reads.
func newEnd(ctx context.Context, host string, i int) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	device := fmt.Sprintf("bp%d-%d", os.Getpid()%100000, i)
	request, err := unix.NewIfreq(device)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd) // the other error counts
		return nil, fmt.Errorf("make the device %s: %w", device, err)
	}
	end := os.NewFile(uintptr(fd), device) // after the ioctl: only now the device can be waited for
	up := fmt.Sprintf("link set lo up\naddr add %s/24 dev %s\nlink set %s mtu 1500 txqueuelen 10000 up\nroute add default dev %s\n", addr(i), device, device, device)
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"ip", "netns", "add", host}},
		{"", []string{"ip", "link", "set", device, "netns", host}},
		{up, []string{"ip", "-n", host, "-batch", "-"}},
	} {
		if err := command(ctx, c.stdin, c.args...); err != nil {
			_ = end.Close()
			return nil, err
		}
	}
	return end, nil
}

// packet is one that is on its way.
type packet struct {
	due  time.Time
	data []byte
}

// pace says when packets arrive that enter a path one after the other.
type pace struct {
	free time.Time // when the path has sent what it has
}

// enter returns when a packet of so many bytes arrives, or false if the path is full.
func (p *pace) enter(now time.Time, bytes int) (time.Time, bool) {
	if p.free.Before(now) {
		p.free = now
	}
	if p.free.Sub(now) > delayQueue {
		return time.Time{}, false
	}
	p.free = p.free.Add(time.Duration(float64(bytes) / delayRate * float64(time.Second)))
	return p.free.Add(delayOne), true
}

// take reads packets until the device is closed.
func take(from *os.File, packets chan<- packet) {
	defer close(packets)
	var p pace
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		due, ok := p.enter(time.Now(), n)
		if !ok {
			continue // lost, as on a path that is full
		}
		select {
		case packets <- packet{due, append([]byte(nil), buffer[:n]...)}:
		default: // as above
		}
	}
}

// hand writes packets when they are due.
func hand(to *os.File, packets <-chan packet) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range packets {
		if wait := time.Until(p.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		_, _ = to.Write(p.data) // a packet that the other host does not take is lost
	}
}
