package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// These are the properties of the path with a delay: 500 Mbit/s and 50 ms each way.
const (
	delayRate  = 500e6 / 8 // bytes of packets per second
	delayOne   = 50 * time.Millisecond
	delayQueue = 100 * time.Millisecond // queue of the path, as a time at its rate
	delayBytes = 256 << 20
)

// relay connects two hosts through this program. It reads the packets of each host, and writes them
// to the other host after a delay. Unlike netem, it needs no kernel module.
type relay struct {
	lab    *lab
	ends   []*os.File // TUN devices
	moving sync.WaitGroup
}

// newRelay creates the two hosts and starts to forward packets.
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
		packets := make(chan packet, int(delayRate*(delayOne+delayQueue).Seconds()/60)) // enough even if all packets are short
		r.moving.Add(2)
		go func() { defer r.moving.Done(); take(from, packets) }()
		go func() { defer r.moving.Done(); hand(to, packets) }()
	}
	return r, nil
}

// close deletes the hosts. This also ends reads and writes of the devices.
func (r *relay) close() {
	for _, end := range r.ends {
		_ = end.Close() // no error matters, because the measurement is over
	}
	r.moving.Wait()
	r.lab.remove()
}

// newEnd creates a host whose only interface is a TUN device that this program reads.
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
		_ = unix.Close(fd) // the first error is reported
		return nil, fmt.Errorf("make the device %s: %w", device, err)
	}
	end := os.NewFile(uintptr(fd), device) // after the ioctl, because before it the poller cannot wait for the device
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

// packet is a packet in flight.
type packet struct {
	due  time.Time
	data []byte
}

// pace calculates the arrival times of packets that enter a path one after the other.
type pace struct {
	free time.Time // when the path has sent all packets so far
}

// enter returns the arrival time of a packet of the given size. ok is false if the queue of the path is full.
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

// take reads packets from a device until the device is closed, and sets the arrival time of each.
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
			continue // dropped, as by a full queue
		}
		select {
		case packets <- packet{due, append([]byte(nil), buffer[:n]...)}:
		default: // dropped: the channel is full
		}
	}
}

// hand writes packets to a device when they are due.
func hand(to *os.File, packets <-chan packet) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range packets {
		if wait := time.Until(p.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		_, _ = to.Write(p.data) // if the other host does not accept the packet, it is lost
	}
}
