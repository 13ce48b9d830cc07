package trace

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strconv"

	"cofferdam"
	"cofferdam/proof"
)

// Seal ends a session's log: a closing event with counts, then a trace.seal
// event in the host's log, then the signed head beside the log. It can be
// repeated after any failure or crash and gives the same head; nothing can be
// recorded after it.
func (l *Log) Seal(ctx context.Context) (Head, error) {
	if l.id == "" {
		return Head{}, &cofferdam.Error{
			Op: "trace.Seal", Kind: cofferdam.Invalid, Subject: "seal trace of the host", Reason: "the host's log does not end",
		}
	}
	l.sealing.Lock()
	defer l.sealing.Unlock()
	if head, ok := l.Sealed(); ok {
		return head, nil
	}
	head, task, err := l.finish()
	if err != nil {
		return Head{}, err
	}
	// The host's log first: once the file with the head exists, so does the
	// event. A crash in between makes a second event, of the same content.
	_, err = l.store.host.Record(ctx, cofferdam.Event{
		Scope: l.scope, Task: task, Session: l.id, Source: "trace", Kind: cofferdam.EventSeal, Resource: string(l.id),
		Actor:   cofferdam.Principal{Kind: cofferdam.Platform, Name: "trace"},
		Fields:  map[string]string{"size": strconv.FormatUint(head.Size, 10), "root": string(head.Root)},
		Durable: true,
	})
	if err != nil {
		return Head{}, err
	}
	note, err := l.store.key.SignHead(head)
	if err != nil {
		return Head{}, err
	}
	if err := l.store.put(l.store.sealPath(l.id), note); err != nil {
		return Head{}, unavailable("seal trace of "+l.title(), err)
	}
	l.mu.Lock()
	l.sealed = &head
	l.mu.Unlock()
	l.detach()
	return head, l.store.writeHead()
}

// finish writes the closing event, if it is not there yet, and syncs. The head's
// time is that of the closing event, so that it is the same every time.
func (l *Log) finish() (Head, cofferdam.TaskID, error) {
	if err := l.close(); err != nil {
		return Head{}, "", err
	}
	l.mu.Lock()
	head, task, end := proof.HeadOf(l.id, &l.tree, l.last.Time), l.task, l.size
	l.mu.Unlock()
	return head, task, l.sync(end)
}

// close writes the closing event. It may use the room that other events may not.
func (l *Log) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended() {
		return l.mend() // a sync of it may have failed
	}
	if err := l.writable(); err != nil {
		return err
	}
	counts := l.tally.Clone()
	if l.gap != nil {
		counts.Add(cofferdam.EventGap, "") // goes in just before the seal
	}
	e, err := clean(cofferdam.Event{
		Scope: l.scope, Session: l.id, Task: l.task, Source: "trace", Kind: cofferdam.EventSessionSeal,
		Actor:  cofferdam.Principal{Kind: cofferdam.Platform, Name: "trace"},
		Fields: counts.Fields(),
	}, nil) // numbers and the platform's words only: nothing to redact
	if err != nil {
		return err
	}
	body, err := encode(e)
	if err != nil {
		return err
	}
	return l.write(&e, body)
}

// checkPrefix checks that the log in r begins with what head says.
func checkPrefix(r io.ReaderAt, head Head) error {
	var tree proof.Tree
	in := bufio.NewReaderSize(io.NewSectionReader(r, 0, MaxBytes), MaxEvent+1)
	for tree.Size() < head.Size {
		line, err := in.ReadSlice('\n')
		if err != nil {
			break
		}
		tree.Append(bytes.TrimSuffix(line, []byte("\n")))
	}
	if got := proof.HeadOf(head.Session, &tree, head.Time); !got.Same(head) {
		return mismatch("the host", got, head)
	}
	return nil
}
