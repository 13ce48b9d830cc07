package model

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"cofferdam"
	"cofferdam/gateway"
)

func invalid(reason, hint string) error {
	return &cofferdam.Error{Op: "model.Serve", Kind: cofferdam.Invalid, Reason: reason, Hint: hint}
}

// writeError answers in the shape that clients of this protocol read: reason
// and hint in two lines. A refusal is never worth another try, and says so in
// the header they look at.
func writeError(w http.ResponseWriter, p *protocol, err error) {
	kind := cofferdam.KindOf(err)
	reason, hint := gateway.Explain(err)
	h := w.Header()
	if d, ok := gateway.DecisionOf(err); ok {
		h.Set(gateway.RuleHeader, d.Rule)
	}
	status := cofferdam.Kinds()[kind].HTTP
	if refusedForMoney(err) {
		status = statusForMoney
	}
	writeStatus(w, p, status, "cofferdam: "+reason+"\nhint: "+hint, kind == cofferdam.Unavailable)
}

// writeStatus answers with an error of this protocol.
func writeStatus(w http.ResponseWriter, p *protocol, status int, message string, again bool) {
	body, err := json.Marshal(p.errorBody(status, message))
	if err != nil {
		body = []byte("{}") // cannot happen: it holds text and a number
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Should-Retry", strconv.FormatBool(again))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

func (p *protocol) errorBody(status int, message string) map[string]any {
	word := errorWords[status]
	if word == [3]string{} {
		word = errorWords[http.StatusInternalServerError]
	}
	switch p.name {
	case openai:
		return map[string]any{"error": map[string]any{"message": message, "type": word[1], "code": "cofferdam", "param": nil}}
	case gemini:
		return map[string]any{"error": map[string]any{"code": status, "message": message, "status": word[2]}}
	}
	return map[string]any{"type": "error", "error": map[string]string{"type": word[0], "message": message}}
}

// errorWords are the protocols' own words for a status: Anthropic, OpenAI, Gemini.
var errorWords = map[int][3]string{
	http.StatusBadRequest:          {"invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"},
	http.StatusForbidden:           {"permission_error", "invalid_request_error", "PERMISSION_DENIED"},
	http.StatusNotFound:            {"not_found_error", "invalid_request_error", "NOT_FOUND"},
	http.StatusUpgradeRequired:     {"invalid_request_error", "invalid_request_error", "FAILED_PRECONDITION"},
	http.StatusTooManyRequests:     {"rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"},
	http.StatusInternalServerError: {"api_error", "server_error", "INTERNAL"},
	http.StatusServiceUnavailable:  {"api_error", "server_error", "UNAVAILABLE"},
}

// unavailable is an error of the provider for the record; a box is told it only
// if there is nothing of the provider's own to pass on.
func unavailable(reason string) error {
	return &cofferdam.Error{
		Op: "model.Forward", Kind: cofferdam.Unavailable, Subject: "model provider", Reason: reason, Hint: "send the request again later",
	}
}

// unreachable tells a box that the provider does not answer, without the
// addresses that the cause may name.
func unreachable(err error) error {
	if cofferdam.KindOf(err) == cofferdam.Denied {
		return err // the dialer refused the provider's address, and says what lists it
	}
	reason := "the model provider does not answer"
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		reason = "the model provider's certificate is signed by an authority that this machine does not know"
	}
	return &cofferdam.Error{
		Op: "model.Forward", Kind: cofferdam.Unavailable, Subject: "model provider", Reason: reason,
		Hint: "a person can look at the provider's address with: cofferdam model view", Err: err,
	}
}

// refused says for people what a provider's refusal means, where it is theirs
// to mend; "" where the provider's own words, which the agent has, say more.
func refused(m cofferdam.Model, status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the provider refused the key of model " + m.Name + "; set it again with: cofferdam model remove " + m.Name +
			" and cofferdam model add " + m.Name
	case http.StatusNotFound:
		return "the provider of model " + m.Name + " does not know the model's id or the path; look at it with: cofferdam model view " + m.Name
	}
	return "the provider of model " + m.Name + " answered " + strconv.Itoa(status)
}
