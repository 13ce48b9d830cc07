package demo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/internal/config"
)

// readyIn is how long keeper and server may take to answer.
const readyIn = 30 * time.Second

// serve starts a keeper and a server that nobody else uses, with the labelled
// test person, and registers repository and, if needed, model.
func (s *story) serve(ctx context.Context) error {
	run := filepath.Join(s.state, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return err
	}
	keeper, socket := filepath.Join(run, "keeper.sock"), filepath.Join(run, "cofferdam.sock")
	if err := s.start(ctx, keeper, "cofferdam-keeper", "--socket", keeper, "--state", filepath.Join(s.state, "keeper")); err != nil {
		return err
	}
	token := random()
	tokenFile := filepath.Join(s.dir, "test-person")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	operator, err := s.operatorFile(ctx)
	if err != nil {
		return err
	}
	if err := s.start(ctx, socket, "cofferdam", "serve", "--state", s.state, "--listen", "off", "--config", operator,
		"--debug-person", person, "--debug-person-token", tokenFile); err != nil {
		return err
	}
	if s.person, err = client.New(client.Options{Server: "unix:" + socket, Token: token}); err != nil {
		return err
	}
	if _, err := s.person.AddRepo(ctx, cofferdam.RepoRequest{Name: "shop", Upstream: s.upstream}); err != nil {
		return err
	}
	return s.addModel(ctx)
}

// start runs a program until the demo ends and waits for its socket.
func (s *story) start(ctx context.Context, socket, program string, args ...string) error {
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(s.Programs, program), args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log tells
		close(gone)
	}()
	s.stops = append(s.stops, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-gone:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-gone
		}
	})
	deadline := time.After(readyIn)
	for {
		if c, err := net.DialTimeout("unix", socket, time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-gone:
			return fmt.Errorf("%s ended: %s", program, strings.TrimSpace(log.String()))
		case <-deadline:
			return fmt.Errorf("%s does not answer after %s", program, readyIn)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// operatorFile writes what the demo's operator allows. On some networks a
// package registry resolves to a reserved address; the operator has to list it.
func (s *story) operatorFile(ctx context.Context) (string, error) {
	file, text := filepath.Join(s.dir, "operator.toml"), "# The demo allows nothing.\n"
	if agents[s.Agent].npm {
		var list []string
		for _, host := range config.Presets(ctx, config.Config{}, config.ThisMachine())["npm"] {
			name, port, err := net.SplitHostPort(host)
			if err != nil {
				name, port = host, "443"
			}
			addrs, err := net.DefaultResolver.LookupHost(ctx, name)
			if err != nil {
				return "", fmt.Errorf("look up the npm registry of this machine: %w", err)
			}
			for _, a := range addrs {
				list = append(list, fmt.Sprintf("%q", net.JoinHostPort(a, port)))
			}
		}
		fmt.Fprintf(s.Progress, "demo: as operator, listing the addresses of this machine's npm registry\n")
		text = "[egress]\nallow_addresses = [" + strings.Join(list, ", ") + "]\n"
	}
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// git runs git on the demo's own folders, as a person would.
func (s *story) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
