"use strict";
// Asks the browser for a passkey about what the server shows, and gives the
// answer back. The ticket is behind the # of the address, which is sent to nobody.
(async () => {
  const says = document.getElementById("says"), go = document.getElementById("go");
  const ticket = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const base64 = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)));
  const text = (buffer) => base64(buffer).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const post = async (path, body) => {
    const r = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    if (r.ok) return r.status === 204 ? null : r.json();
    throw new Error((await r.json()).detail);
  };
  const fail = (err) => { says.textContent = "That did not work: " + err.message; };
  let page;
  try {
    page = await post("/v1/passkeys/page", { ticket });
  } catch (err) {
    return fail(err);
  }
  const key = page.options.publicKey;
  key.challenge = bytes(key.challenge);
  if (key.user) key.user.id = bytes(key.user.id);
  for (const list of [key.excludeCredentials, key.allowCredentials]) for (const c of list || []) c.id = bytes(c.id);
  says.textContent = page.kind === "create" ? "A passkey is to be made for your account. Go on only if you began this." : "Your passkey is to sign for the request below. Go on only if you began this.";
  document.getElementById("what").textContent = page.what;
  go.hidden = false;
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      const made = await navigator.credentials[page.kind]({ publicKey: key });
      const response = {};
      for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"])
        if (made.response[name]) response[name] = text(made.response[name]);
      const answer = JSON.stringify({ id: made.id, rawId: text(made.rawId), type: made.type, response });
      await post("/v1/passkeys/page/answer", { ticket, answer: base64(new TextEncoder().encode(answer)) });
      says.textContent = "That is all. The terminal goes on; close this page.";
      go.hidden = true;
    } catch (err) {
      go.disabled = false;
      fail(err);
    }
  });
})();
