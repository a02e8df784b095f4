package launch

import (
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/shm"
)

// The wait status of a killed process comes when the kernel has freed its memory, which takes 65 ms
// for each GB. The end of its program is known earlier, by a word (shm.ProcessWord):
//
//	program    holds a word, and passes its memory with hello through the socket
//	launcher,  watches the words of the programs on its host, and sends dying to the launcher's
//	  agent    loop
//	launcher   tells the other peers that the program is dead; the end of its process comes later, with
//	           the status
//
// The memory goes through the socket, so it reaches the launcher from every program that can say
// hello, however many wrappers there are around it. Where the word is missing, the status tells. The
// word belongs to the ID of the hello: the end of a program says nothing about a further program of
// the same wrapper.

// wordConn is a peer's socket to its launcher. It passes a file with the next data.
type wordConn struct {
	*net.UnixConn
	word atomic.Pointer[os.File] // the file to pass; nil for none
}

// Write implements io.Writer.
func (c *wordConn) Write(b []byte) (n int, err error) {
	if f := c.word.Load(); f != nil && len(b) > 0 {
		c.word.Store(nil)
		// A socket may take a part of a message; of one byte it takes all or nothing.
		if n, _, err = c.WriteMsgUnix(b[:1], syscall.UnixRights(int(f.Fd())), nil); err != nil {
			return n, err
		}
	}
	rest, err := c.UnixConn.Write(b[n:])
	return n + rest, err
}

// passWord makes the word of this program, which goes to the launcher with the next message. Without
// a word the launcher learns of the end of this program by its status.
func (a *agent) passWord() {
	conn, ok := a.pipe.conn.(*wordConn)
	if !ok {
		return
	}
	word, err := shm.HoldWord()
	if err != nil {
		return
	}
	a.word = word
	conn.word.Store(word.File())
}

// releaseWord gives the word back: this program is no peer any more.
func (a *agent) releaseWord() error {
	if a.word == nil {
		return nil
	}
	return a.word.Release()
}

// watcher returns the ID of the launcher that reports the ends of its peers at once; "" if it does
// not.
func (o startOrder) watcher() string {
	if o.Watched {
		return o.Launcher
	}
	return ""
}

// hello passes on the hello of a program, and watches the word that came with it.
func (c *local) hello(m message, pid int) {
	word := c.takeWord()
	c.watched.Store(word != nil) // before the answer to hello
	id := m.Hello.ID
	c.to.message(m, pid)
	if word == nil {
		return
	}
	c.ends.Go(func() {
		defer word.Close()
		select {
		case <-word.Died():
			c.to.dying(id)
		case <-c.exited:
		}
	})
}

// dying implements receiver: the agent passes the end of the program on.
func (r *relay) dying(id elastic.ID) {
	_ = r.a.out.write(frame{Index: r.index, report: report{Dying: id}})
}

// takeWord begins to watch the word of the program that says hello. It returns nil if there is none.
func (c *local) takeWord() *shm.WatchedWord {
	file := c.senders.take()
	if file == nil {
		return nil
	}
	word, err := c.words.Watch(file)
	if err != nil {
		return nil
	}
	return word
}

// dying records that the program of peer i that said hello by an ID has ended, though its process may
// not have. It reports false for an earlier program, whose end is known.
func (r *roster) dying(i int, id elastic.ID) bool {
	g := r.peers[i]
	if g == nil || g.ended || !slices.Contains(g.ids, id) {
		return false
	}
	r.dead = append(r.dead, g.ids...)
	return true
}
