package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/proof"
)

func newProof(a *app) *cobra.Command {
	return newNoun("proof", "See and check the evidence", newProofView(a), newProofExport(a), newProofVerify(a))
}

func newProofView(a *app) *cobra.Command {
	var key bool
	c := &cobra.Command{
		Use: "view TASK", Short: "Show the signed receipt for a task's commit", ValidArgsFunction: a.completeTasks,
		Args: func(c *cobra.Command, args []string) error {
			if key {
				return none(c, args)
			}
			return exactly("TASK")(c, args)
		},
		Long:    "Show the signed receipt for a task's commit: what the checks did, by which policies its sessions were judged, what people let pass, its scope and its budget. With --key, the public key that checks receipts and exports." + calling(),
		Example: "  cofferdam proof view t-1\n  cofferdam proof view --key > cofferdam.pub",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			if key {
				return a.showKey(c.Context(), cl)
			}
			r, err := cl.Proof(c.Context(), args[0])
			if err != nil {
				return err
			}
			public, err := cl.Key(c.Context())
			if err != nil {
				return err
			}
			signed, err := proof.OpenReceipt(r.Note, public)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(struct {
					client.Receipt
					Terms *proof.Terms `json:"terms,omitempty"`
				}{r, signed.Terms})
			}
			if err := a.labels([]label{{"receipt", string(r.ID)}, {"task", string(r.Task)}, {"commit", string(r.Commit)}, {"base", string(r.Report.Base)}, {"created", stamp(r.Created)}}); err != nil {
				return err
			}
			changes{a}.showProof(&r.Report)
			a.showTerms(signed, nil)
			return nil
		}),
	}
	c.Flags().BoolVar(&key, "key", false, "print the server's public key")
	return c
}

func (a *app) showKey(ctx context.Context, cl *client.Client) error {
	k, err := cl.Key(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.object(struct {
			Schema string `json:"schema"`
			Key    string `json:"key"`
		}{"cofferdam/key/v1", k})
	}
	_, err = fmt.Fprintln(a.Out, clean(k))
	return err
}

func newProofExport(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "export TASK", Short: "Write the signed receipt into a file", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Write the signed receipt for a task's commit, a signed note." + calling(), Example: "  cofferdam proof export t-1 -o t-1.note",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			return a.write(c, file, func(ctx context.Context, w io.Writer) error { return cl.ExportProof(ctx, args[0], w) })
		}),
	}
	c.Flags().StringVarP(&file, "output", "o", "", "write into this file (default: stdout)")
	return c
}

// maxReceipt bounds a receipt's file; an export is read as a stream.
const maxReceipt = 4 << 20

func newProofVerify(a *app) *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "verify FILE", Short: "Check an export or a receipt; no server needed", Args: exactly("FILE"),
		Long: "Check an export or a receipt with the file and the public key alone. A changed, dropped or reordered event is found; a missing end is not sealed; " +
			"both exit 11." + exits(0, 2, 11), Example: "  cofferdam proof verify t-1.jsonl --key cofferdam.pub",
		RunE: func(c *cobra.Command, args []string) error {
			if key == "" {
				return usage(c, "--key FILE is missing: the public key has to come from somebody you trust, not from the file that is checked")
			}
			public, err := a.readText(key, 4096)
			if err != nil {
				return err
			}
			r := a.In
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return cofferdamError("file "+args[0], plain(err), "check its name")
				}
				defer f.Close()
				r = f
			}
			return a.verify(r, strings.TrimSpace(public))
		},
	}
	c.Flags().StringVar(&key, "key", "", "file with the public key, as cofferdam proof view --key prints it")
	return c
}

func (a *app) verify(r io.Reader, public string) error {
	first := make([]byte, len("cofferdam receipt"))
	n, err := io.ReadFull(r, first)
	if err != nil && n == 0 && err != io.EOF {
		return cofferdamError("file", plain(err), "give a file, not a folder")
	}
	r = io.MultiReader(strings.NewReader(string(first[:n])), r)
	if string(first) == "cofferdam receipt" {
		return a.verifyReceipt(r, public)
	}
	report, err := proof.Verify(r, public)
	if err != nil {
		return err
	}
	if a.json {
		return a.object(report)
	}
	if err := a.labels([]label{
		{"verified", strings.Join([]string{
			count(report.Events, "event") + " of " + count(len(report.Sessions), "session"),
			count(report.Entries, "event") + " of the host", count(len(report.Policies), "version") + " of policies", count(len(report.Receipts), "receipt"),
		}, ", ")},
		{"task", string(report.Task)},
		{"exported", stamp(report.Exported)},
		{"key", report.Key},
	}); err != nil {
		return err
	}
	for _, s := range report.Sessions {
		fmt.Fprintf(a.Out, "  session %s: %d events, sealed %s\n", clean(string(s.Session)), s.Events, stamp(s.Time))
	}
	for _, p := range report.Policies {
		whose := "project"
		if p.Project == "" {
			whose = "organisation"
		}
		fmt.Fprintf(a.Out, "  version %d of the %s's policy: %s, proposed by %s, taken by %s at %s\n", p.Version, whose, clean(short(string(p.Digest))), clean(p.ProposedBy), clean(p.DecidedBy), stamp(p.Time))
	}
	for _, receipt := range report.Receipts {
		if err := a.showReceipt(receipt, report.Policies); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) verifyReceipt(r io.Reader, public string) error {
	data, err := io.ReadAll(io.LimitReader(r, maxReceipt+1))
	if err != nil || len(data) > maxReceipt {
		return &cofferdam.Error{Op: "cli.Verify", Kind: cofferdam.Tampered, Subject: "receipt", Reason: "is larger than any receipt", Hint: "do not trust this file"}
	}
	receipt, err := proof.OpenReceipt(data, public)
	if err != nil {
		return err
	}
	if a.json {
		return a.object(receipt)
	}
	return a.showReceipt(receipt, nil)
}

func (a *app) showReceipt(r proof.Receipt, known []proof.PolicyChange) error {
	report := r.Report()
	word := "held"
	if !report.Held {
		word = "NOT held"
	}
	if report.RegressionOnly {
		word += ", regression only"
	}
	_, err := fmt.Fprintf(a.Out, "  receipt for %s on %s: %s, %s\n", clean(short(string(report.Commit))), clean(short(string(report.Base))), count(len(report.Checks), "check"), word)
	a.showTerms(r, known)
	return err
}
