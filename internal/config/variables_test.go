package config

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVariables(t *testing.T) {
	m := Machine{Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
		switch name + " " + strings.Join(args, " ") {
		case "npm config get registry":
			return []byte("https://user:secret@npm.example.com/path/\n"), nil
		case "go env GOPROXY GOSUMDB":
			return []byte("https://u:p@go.example.com,direct\noff\n"), nil
		case "pip config list":
			return []byte("global.cert='/x'\nglobal.index-url='https://u:p@pip.example.com/simple'\n"), nil
		}
		return nil, errors.New("no such tool")
	}}
	want := []string{
		"NPM_CONFIG_REGISTRY=https://npm.example.com/path/",
		"GOPROXY=https://go.example.com,direct", "GOSUMDB=off",
		"PIP_INDEX_URL=https://pip.example.com/simple",
	}
	if diff := cmp.Diff(want, Variables(t.Context(), m)); diff != "" {
		t.Errorf("variables differ (-want +got):\n%s", diff)
	}
	if got := Variables(t.Context(), Machine{}); len(got) != 0 {
		t.Errorf("a machine without tools gives %q", got)
	}
}
