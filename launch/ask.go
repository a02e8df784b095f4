package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// ask makes one request to the peer at a control socket. An answer that reports an error is
// returned as an error. ctx limits the connection only; exchange has time limits of its own.
func ask(ctx context.Context, at socketName, what request) (reply, error) {
	conn, r, err := open(ctx, at, what)
	if err == nil {
		_ = conn.Close()
	}
	return r, err
}

// open makes a request like ask and keeps the connection open. The caller closes it.
func open(ctx context.Context, at socketName, what request) (net.Conn, reply, error) {
	conn, err := dialControl(ctx, at)
	if err != nil {
		return nil, reply{}, fmt.Errorf("launch: ask %v: %w", at, err)
	}
	r, err := exchange(conn, what)
	if err != nil {
		_ = conn.Close()
		return nil, reply{}, fmt.Errorf("launch: ask %v: %w", at, err)
	}
	return conn, r, nil
}

// exchange sends a request and reads the line of the answer. It fails after controlPeriod; a
// request that other members or the launcher help to answer gets scalePeriod in addition. It sends
// nothing to a socket of another user, because that user could have replaced the peer's socket.
func exchange(conn net.Conn, what request) (reply, error) {
	limit := time.Now().Add(controlPeriod)
	if what.Request != "status" && what.Request != "stop" && what.Request != "dead" {
		limit = limit.Add(scalePeriod)
	}
	if err := errors.Join(sameUser(conn), conn.SetDeadline(limit)); err != nil {
		return reply{}, err
	}
	line, err := json.Marshal(what)
	if err != nil {
		return reply{}, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return reply{}, err
	}
	// The limit keeps a broken peer from filling the memory of elrun status.
	b, err := bufio.NewReader(io.LimitReader(conn, maxReply)).ReadBytes('\n')
	if err != nil {
		return reply{}, fmt.Errorf("read the answer: %w", err)
	}
	return decodeReply(b)
}

// decodeReply decodes the answer to a request. An empty answer is an error.
func decodeReply(b []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return reply{}, fmt.Errorf("decode reply: %w", err)
	}
	if r.Error != "" {
		return reply{}, errors.New(r.Error)
	}
	if r.Status == nil && !r.Stopping && r.Scaling == "" && r.Ticket == nil && r.Done == "" {
		return reply{}, errors.New("decode reply: the reply is empty")
	}
	return r, nil
}

// splitIDs splits a list at commas and spaces, and drops empty parts.
func splitIDs(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// join is the inverse of splitIDs.
func join(parts []string) string { return strings.Join(parts, ",") }
