package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// page stands for a browser: it gives the script one page of each kind and a
// credential, and prints what the script sends.
const page = `
const fs = require("fs");
const kind = process.argv[3];
const elements = {};
const element = (id) => elements[id] ||= { textContent: "", hidden: true, addEventListener: (_, f) => { elements[id].click = f; } };
const bytes = (...b) => new Uint8Array(b).buffer;
const sent = [];
globalThis.document = { getElementById: element };
globalThis.location = { hash: "#the-ticket", pathname: "/v1/passkeys/page" };
globalThis.history = { replaceState: (_a, _b, path) => sent.push({ replaced: path }) };
globalThis.fetch = async (path, o) => {
  sent.push({ path, method: o.method, type: o.headers["Content-Type"], body: JSON.parse(o.body) });
  if (path.endsWith("/answer")) return { ok: true, status: 204 };
  const options = { challenge: "-_8A", user: { id: "AQI" }, excludeCredentials: [{ id: "_w" }], allowCredentials: [{ id: "_g" }] };
  return { ok: true, status: 200, json: async () => ({ kind, what: "<b>the request</b>", options: { publicKey: options } }) };
};
const call = async ({ publicKey }) => {
  sent.push({ challenge: [...publicKey.challenge], user: [...publicKey.user.id], exclude: [...publicKey.excludeCredentials[0].id], allow: [...publicKey.allowCredentials[0].id] });
  const response = kind === "create" ? { clientDataJSON: bytes(1), attestationObject: bytes(251, 255, 254) } : { clientDataJSON: bytes(1), authenticatorData: bytes(2), signature: bytes(3), userHandle: null };
  return { id: "cred", rawId: bytes(255), type: "public-key", response };
};
Object.defineProperty(globalThis, "navigator", { value: { credentials: { create: call, get: call } } });
(0, eval)(fs.readFileSync(process.argv[2], "utf8"));
const wait = (ok, then) => ok() ? then() : setImmediate(() => wait(ok, then));
wait(() => !element("go").hidden, () => {
  element("go").click();
  wait(() => element("go").hidden, () => console.log(JSON.stringify({ sent, what: element("what").textContent })));
});
`

// TestPasskeyScript runs the page's script, without a browser: it shows the request
// as text, gives the browser the bytes that the server gave, and sends back what
// the server reads. What a browser does is not run here.
func TestPasskeyScript(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("not run here: there is no node")
	}
	dir := t.TempDir()
	harness := filepath.Join(dir, "page.cjs")
	if err := os.WriteFile(harness, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, response := range map[string]string{
		"create": `{"clientDataJSON":"AQ","attestationObject":"-__-"}`, "get": `{"clientDataJSON":"AQ","authenticatorData":"Ag","signature":"Aw"}`,
	} {
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), node, harness, "passkey.js", kind)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		var got struct {
			What string
			Sent []struct {
				Replaced, Path, Method, Type    string
				Challenge, User, Exclude, Allow []int
				Body                            struct{ Ticket, Answer string }
			}
		}
		if err != nil || json.Unmarshal(out, &got) != nil || len(got.Sent) != 4 {
			t.Fatalf("%s: %v\n%s%s", kind, err, out, errs.Bytes())
		}
		look, asked, answer := got.Sent[1], got.Sent[2], got.Sent[3]
		if got.What != "<b>the request</b>" || got.Sent[0].Replaced != "/v1/passkeys/page" || look.Path != "/v1/passkeys/page" || look.Method != "POST" || look.Type != "application/json" || look.Body.Ticket != "the-ticket" {
			t.Errorf("%s: %s", kind, out)
		}
		if !bytes.Equal(ints(asked.Challenge), []byte{251, 255, 0}) || !bytes.Equal(ints(asked.User), []byte{1, 2}) || !bytes.Equal(ints(asked.Exclude), []byte{255}) || !bytes.Equal(ints(asked.Allow), []byte{254}) {
			t.Errorf("%s: the browser was given %+v", kind, asked)
		}
		text, err := base64.StdEncoding.DecodeString(answer.Body.Answer)
		if want := `{"id":"cred","rawId":"_w","type":"public-key","response":` + response + `}`; err != nil || string(text) != want || answer.Path != "/v1/passkeys/page/answer" || answer.Body.Ticket != "the-ticket" {
			t.Errorf("%s: %+v: %s", kind, answer, text)
		}
	}
}

func ints(list []int) (b []byte) {
	for _, n := range list {
		b = append(b, byte(n))
	}
	return b
}
