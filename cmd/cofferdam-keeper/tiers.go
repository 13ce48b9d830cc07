package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/gvisor"
	"cofferdam/sandbox/microvm"
	"cofferdam/sandbox/process"
)

// drivers are what this keeper serves, and how each is given up.
type drivers struct {
	log   *slog.Logger
	of    map[sandbox.Tier]sandbox.Driver
	close []func(context.Context) error
}

// open opens a driver for every tier. That of tier gvisor must be; another one
// that cannot be opened is said in the log, and its tier is refused.
func (s settings) open(log *slog.Logger) (*drivers, error) {
	o, err := s.driver()
	if err != nil {
		return nil, err
	}
	o.Log = log
	kernel, err := gvisor.New(o)
	if err != nil {
		return nil, err
	}
	d := &drivers{log: log, of: map[sandbox.Tier]sandbox.Driver{sandbox.GVisor: kernel}, close: []func(context.Context) error{kernel.Close}}
	plain, err := process.New(s.plain(o))
	if d.missed(sandbox.Process, err) {
		d.of[sandbox.Process], d.close = plain, append(d.close, plain.Close)
	}
	m := s.machines(o, filepath.Join(s.state, "microvm"))
	m.Monitor, m.Workspaces = s.monitor, filepath.Join(s.kept, "microvm", "workspaces")
	machines, err := microvm.New(m)
	if d.missed(sandbox.MicroVM, err) {
		if err := os.WriteFile(s.monitorFile(), []byte(s.monitor), 0o600); err != nil {
			return nil, errors.Join(layer("state folder", "choose a folder that this keeper can write, with --state", err), d.end(context.Background()))
		}
		d.of[sandbox.MicroVM], d.of[sandbox.Emulated] = machines, machines
		d.close = append(d.close, machines.Close)
	}
	return d, nil
}

// plain says where the driver of tier process works, beside that of tier gvisor.
func (s settings) plain(o gvisor.Options) process.Options {
	return process.Options{
		Root: filepath.Join(s.state, "process"), Workspaces: filepath.Join(s.kept, "process", "workspaces"), Init: o.Init, Log: o.Log,
		Watched: o.Watched, User: o.User,
	}
}

// machines says where the driver of machines works, and how.
func (s settings) machines(o gvisor.Options, root string) microvm.Options {
	return microvm.Options{
		Root: root, Init: o.Init, Kernel: s.kernel, Monitor: s.chosenMonitor(), Proof: kvmProof, Log: o.Log, Watched: o.Watched && o.User, User: o.User,
	}
}

// missed says in the log that a tier's driver could not be opened.
func (d *drivers) missed(t sandbox.Tier, err error) (opened bool) {
	if err != nil {
		d.log.Warn("a tier cannot be had", slog.Any("tier", t), slog.Any("err", err), slog.Any("hint", cofferdam.HintOf(err)))
	}
	return err == nil
}

// end ends every box. ctx may have ended; what is left has to go all the same.
func (d *drivers) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	var errs []error
	for _, f := range d.close {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// examined are the tiers that --check looks at.
func (s settings) examined() []sandbox.Tier {
	if s.tier != "" {
		return []sandbox.Tier{sandbox.Tier(s.tier)}
	}
	return []sandbox.Tier{sandbox.GVisor, sandbox.Process, sandbox.MicroVM, sandbox.Emulated}
}

// examine prints what each tier's driver finds on this host.
func (s settings) examine(ctx context.Context) error {
	o, err := s.driver()
	if err != nil {
		return err
	}
	found := map[sandbox.Tier][]sandbox.Finding{}
	var list []sandbox.Survey
	for _, tier := range s.examined() {
		offer := sandbox.OfferOf(tier)
		switch tier {
		case sandbox.GVisor:
			found[tier] = gvisor.Check(ctx, o)
			if s.inUser() {
				offer = gvisor.UserOffer()
			}
		case sandbox.Process:
			found[tier] = process.Check(ctx, s.plain(o))
			offer = process.OfferOf(watched(found[tier]))
		default: // one look is for both
			if found[tier] == nil {
				found[sandbox.MicroVM], found[sandbox.Emulated] = s.examineMachines(ctx, o)
			}
		}
		if s.inUser() {
			dir, err := ownGroup()
			found[tier] = groupsOf(found[tier], dir, err)
		}
		list = append(list, sandbox.NewSurvey(offer, found[tier]))
	}
	return print(os.Stdout, list)
}

// monitorFile remembers what runs machines, for who examines the host.
func (s settings) monitorFile() string { return filepath.Join(s.state, "microvm", "monitor") }

// chosenMonitor is what was asked for, or what the keeper of this state folder was
// started with.
func (s settings) chosenMonitor() string {
	if s.monitor != "" {
		return s.monitor
	}
	data, err := os.ReadFile(s.monitorFile())
	if err != nil || !slices.Contains(microvm.Monitors(), string(data)) {
		return "" // no keeper was started here
	}
	return string(data)
}

// examineMachines looks at the tiers of machines, in a folder that is removed
// again: the mount namespace is this process's own.
func (s settings) examineMachines(ctx context.Context, o gvisor.Options) (machines, emulated []sandbox.Finding) {
	dir, err := os.MkdirTemp("", "cofferdam-check-")
	var d *microvm.Driver
	if err == nil {
		defer os.RemoveAll(dir)
		d, err = microvm.New(s.machines(o, dir))
	}
	var findings []sandbox.Finding
	if err == nil {
		emulated = d.Emulation()
		findings, err = d.Check(ctx)
		err = errors.Join(err, d.Close(ctx))
	}
	if err != nil {
		findings = append(findings, sandbox.Finding{Name: "microvm-check", Level: sandbox.Fail, Detail: err.Error(), Fix: cofferdam.HintOf(err)})
	}
	// What is a warning to an emulated machine is missing to a real one, but for
	// limits that both do without where they are watched.
	proved := false
	for _, f := range findings {
		if f.Level == sandbox.Warn && f.Name != "microvm-control-groups" {
			f.Level = sandbox.Fail
		}
		proved = proved || f.Name == "microvm-kvm"
		machines = append(machines, f)
	}
	if !proved {
		machines = append(machines, sandbox.Finding{
			Name: "microvm-kvm", Level: sandbox.Fail, Detail: "not proved, since something before it is missing", Fix: "mend the others first",
		})
	}
	return machines, append(emulated, findings...)
}

// print writes what was found as JSON; the first thing that forbids a box of
// the only tier asked for, else of tier gvisor, is its error.
func print(w io.Writer, list []sandbox.Survey) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	if err := out.Encode(map[string]any{"schema": "cofferdam/tiers/v1", "tiers": list}); err != nil {
		return err
	}
	for _, t := range list {
		for _, f := range t.Findings {
			if (t.Tier == sandbox.GVisor || len(list) == 1) && f.Level == sandbox.Fail {
				return &cofferdam.Error{Op: "keeper.check", Kind: cofferdam.Unavailable, Subject: f.Name, Reason: f.Detail, Hint: f.Fix}
			}
		}
	}
	return nil
}
