package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// placeScript writes one file as the agent: under a new name first, so that a
// file is there whole or not at all. In a box that an agent has used, whatever
// it put in the way can only hurt itself.
const placeScript = `set -eu
umask 077
mkdir -p -- "$(dirname -- "$FILE")"
cat >"$FILE.new"
test "$(wc -c <"$FILE.new")" -eq "$SIZE"
mv -f -- "$FILE.new" "$FILE"
`

const (
	placeTimeout = time.Minute // of one file
	placeChunk   = 64 << 10    // bytes of its text on their way at a time
)

// put writes an agent's files into its box. It can be done again at any time
// before the agent starts: a command whose writer is gone waits for ever, so
// the next process ends it and takes another id.
func (d dialogue) put(ctx context.Context, files []agent.File) error {
	if len(files) == 0 {
		return nil
	}
	var before [2]int
	d.ledger.look(func(s *seen) { before = s.talk.files })
	for i := range before[1] {
		if err := d.box.Kill(ctx, placeID(before[0], i)); err != nil && !lost(err) {
			return err
		}
	}
	try := before[0] + 1
	fields := map[string]string{fieldTries: strconv.Itoa(try), fieldNumber: strconv.Itoa(len(files))}
	for i, f := range files {
		sum := sha256.Sum256([]byte(f.Text))
		fields[fmt.Sprintf("file_%d", i+1)] = fmt.Sprintf("%s %d bytes sha256:%s", f.Path, len(f.Text), hex.EncodeToString(sum[:]))
	}
	if err := d.ledger.step(ctx, stepFiles, fields); err != nil {
		return err
	}
	for i, f := range files {
		if err := d.placeOne(ctx, placeID(try, i), f); err != nil {
			return err
		}
	}
	return nil
}

func placeID(try, i int) cofferdam.ExecID {
	return cofferdam.ExecID(fmt.Sprintf("file-%d-%d", try, i+1))
}

func (d dialogue) placeOne(ctx context.Context, id cofferdam.ExecID, f agent.File) error {
	c := sandbox.Command{
		ID: id, Shell: placeScript, Dir: "/", Stdin: true, Timeout: placeTimeout,
		Env: []string{"FILE=" + f.Path, "SIZE=" + strconv.Itoa(len(f.Text))},
	}
	if err := d.begin(ctx, d.box, policy.ByPlatform, c); err != nil {
		return err
	}
	text := []byte(f.Text)
	for {
		part := text[:min(len(text), placeChunk)]
		text = text[len(part):]
		err := d.box.Write(ctx, id, part, len(text) == 0)
		if err != nil && cofferdam.KindOf(err) != cofferdam.Conflict { // Conflict: it has ended, and how is seen below
			return boxError(err)
		}
		if len(text) == 0 || err != nil {
			break
		}
	}
	var said bytes.Buffer
	res, err := d.box.Attach(ctx, id, sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error {
		said.Write(p[:min(len(p), maxTail-said.Len())])
		return nil
	})
	switch {
	case err != nil:
		return boxError(err)
	case res.Lost:
		return fail(cofferdam.ReasonBox, errBoxLost.Error()+": "+res.Reason)
	case res.Exit != 0:
		why := lastLine(strings.ToValidUTF8(said.String(), "\uFFFD"))
		if why == "" {
			why = endText(res)
		}
		return fail(cofferdam.ReasonAgent, fmt.Sprintf("the file %s of agent %s could not be written: %s", f.Path, d.adapter.Name, why))
	}
	return nil
}
