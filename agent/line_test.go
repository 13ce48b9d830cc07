package agent

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"cofferdam"
)

// BR-05: a long line is read as cut, with a mark and the length of the whole;
// what comes after it is read, and the verdict is right.
func TestLongLinesAreReadAsCut(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, size := range []int{70_000, 1 << 20, 20 << 20} {
		for adapter, form := range map[string]string{
			"claude": `{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"%s"}]}]}}` + "\n" +
				`{"type":"assistant","message":{"content":[{"type":"text","text":"I go on."}]}}` + "\n" +
				`{"type":"result","is_error":false,"result":"%s\ncofferdam: blocked: no host"}` + "\n",
			"codex": `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"%s"}}` + "\n" +
				`{"type":"item.completed","item":{"id":"2","type":"agent_message","text":"I go on."}}` + "\n" +
				`{"type":"turn.failed","error":{"message":"%s\ncofferdam: blocked: no host"}}` + "\n",
		} {
			long := "head" + strings.Repeat("x", size-8) + "tail"
			events, end := read(t, adapter, fmt.Sprintf(form, long, strings.ReplaceAll(long, "\n", `\n`)), 64<<10)
			if len(events) != 2 || events[1].Text != "I go on." {
				t.Fatalf("%s, %d: %d events", adapter, size, len(events))
			}
			if text := events[0].Text; len(text) > MaxText || !strings.HasSuffix(text, "xxtail") || !strings.HasPrefix(text, "[the end of ") {
				t.Errorf("%s, %d: %.40q, %d bytes", adapter, size, text, len(text))
			}
			var total int
			if _, err := fmt.Sscanf(events[0].Text, "[the end of %d bytes]", &total); err != nil || total != size {
				t.Errorf("%s, %d: the mark says %d: %v", adapter, size, total, err)
			}
			if end.Said != cofferdam.SaidBlocked || end.Message != "no host" || end.Skipped != 0 {
				t.Errorf("%s, %d: %+v", adapter, size, end)
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// A line is never larger in memory than MaxLine, whatever it holds.
func TestLinesAreBoundedInMemory(t *testing.T) {
	for name, line := range map[string]string{
		"one string":     `{"a":"` + strings.Repeat("x", 4*MaxLine) + `"}`,
		"no end":         `{"a":"` + strings.Repeat("x", 4*MaxLine),
		"escapes":        `{"a":"` + strings.Repeat(`\u00e4`, MaxLine) + `"}`,
		"quotes":         `{"a":"` + strings.Repeat(`\"`, MaxLine) + `"}`,
		"backslashes":    strings.Repeat(`\`, 4*MaxLine),
		"brackets":       strings.Repeat(`[`, 4*MaxLine),
		"many strings":   `[` + strings.Repeat(`"`+strings.Repeat("y", clipMost)+`",`, 100) + `1]`,
		"broken letters": `{"a":"` + strings.Repeat("\xff\xbf", 2*MaxLine) + `"}`,
	} {
		for _, text := range []bool{false, true} {
			c := clipper{text: text}
			for _, b := range []byte(line) {
				if c.add([]byte{b}); len(c.line) > MaxLine {
					t.Fatalf("%s: %d bytes are kept", name, len(c.line))
				}
			}
			if p, ok := c.whole(); ok && !text && json.Valid([]byte(line)) && !json.Valid(p) {
				t.Errorf("%s: is no JSON any more", name)
			}
		}
	}
}

// FuzzClipper: what is left of JSON is JSON that differs only in long strings.
func FuzzClipper(f *testing.F) {
	f.Add(`{"a":"%","b":["\u00e4\\",1]}`, "ä\\u00e4", 9000)
	f.Add(`["%"]`, `\\\"`, 20000)
	f.Fuzz(func(t *testing.T, form, unit string, n int) {
		if len(unit) > 16 {
			return
		}
		n = max(n, -n) & 0x7fff
		line := strings.ReplaceAll(form, "%", strings.Repeat(unit, n))
		if len(line) > 4*MaxLine {
			return
		}
		var whole, parts clipper
		whole.add([]byte(line))
		for i := 0; i < len(line); i += 1000 {
			parts.add([]byte(line[i:min(i+1000, len(line))]))
		}
		p, ok := whole.whole()
		if q, same := parts.whole(); ok != same || string(p) != string(q) {
			t.Fatal("it depends on how the line is cut")
		}
		if !json.Valid([]byte(line)) || !ok {
			return
		}
		if !json.Valid(p) {
			t.Fatalf("no JSON any more: %.100q", p)
		}
		if whole.dropped == 0 && string(p) != line {
			t.Errorf("nothing was dropped, and %.100q is %.100q", line, p)
		}
	})
}
