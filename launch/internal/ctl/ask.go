package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
)

// Ask makes one request to the peer at a control socket. An answer that reports an error is
// returned as an error. ctx limits the connection only; exchange has time limits of its own.
func Ask(ctx context.Context, at SocketName, what wire.Request) (wire.Reply, error) {
	conn, r, err := open(ctx, at, what)
	if err == nil {
		_ = conn.Close()
	}
	return r, err
}

// open makes a request like ask and keeps the connection open. The caller closes it.
func open(ctx context.Context, at SocketName, what wire.Request) (net.Conn, wire.Reply, error) {
	conn, err := dial(ctx, at)
	if err != nil {
		return nil, wire.Reply{}, fmt.Errorf("launch: ask %v: %w", at, err)
	}
	r, err := exchange(conn, what)
	if err != nil {
		_ = conn.Close()
		return nil, wire.Reply{}, fmt.Errorf("launch: ask %v: %w", at, err)
	}
	return conn, r, nil
}

// exchange sends a request and reads the line of the answer. It fails after ControlPeriod; a
// request that other members or the launcher help to answer gets ScalePeriod in addition. It sends
// nothing to a socket of another user, because that user could have replaced the peer's socket.
func exchange(conn net.Conn, what wire.Request) (wire.Reply, error) {
	limit := time.Now().Add(ControlPeriod)
	if !slices.Contains([]string{"status", "stop", "dead", "watch", "events", "record"}, what.Request) {
		limit = limit.Add(ScalePeriod)
	}
	if err := errors.Join(SameUser(conn), conn.SetDeadline(limit)); err != nil {
		return wire.Reply{}, err
	}
	line, err := wire.Encode(what)
	if err != nil {
		return wire.Reply{}, err
	}
	if _, err := conn.Write(line); err != nil {
		return wire.Reply{}, err
	}
	// The limit keeps a broken peer from filling the memory of elrun status.
	b, err := wire.NewReader(conn, wire.MaxReply).Line()
	if err != nil {
		return wire.Reply{}, fmt.Errorf("read the answer: %w", err)
	}
	return wire.DecodeReply(b)
}
