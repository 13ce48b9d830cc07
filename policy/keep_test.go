package policy

import (
	"strings"
	"testing"
	"time"

	"cofferdam"
)

func TestProjectKeep(t *testing.T) {
	p, err := ParseProject([]byte("[workspace]\nkeep = \"72h\"\n"))
	if err != nil || p.Keep != 72*time.Hour {
		t.Errorf("%v %v", p.Keep, err)
	}
	if p, err := ParseProject(nil); err != nil || p.Keep != 0 {
		t.Errorf("nothing said: %v %v", p.Keep, err)
	}
	for _, bad := range []string{`keep = "59m"`, `keep = "-72h"`, `keep = ""`, `keep = "three days"`, `keep = 72`, `size = "1GiB"`} {
		_, err := ParseProject([]byte("[workspace]\n" + bad + "\n"))
		if cofferdam.KindOf(err) != cofferdam.Invalid || err == nil || !strings.Contains(err.Error(), strings.Fields(bad)[0]) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
