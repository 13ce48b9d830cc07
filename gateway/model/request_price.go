package model

import (
	"fmt"
	"slices"
	"strings"
)

// cheap are the values, by their key, with which a call costs no more than the
// list price of its model. Any other value has a price of its own: faster or
// reserved service, a region, sound and pictures.
var cheap = map[string][]string{
	"service_tier":  {"auto", "default", "standard", "standard_only", "flex", "batch", "unspecified"},
	"speed":         {"standard"},
	"inference_geo": {"global", "not_available"},
	"modalities":    {"text"},
}

// dearer returns what in a request has another price than its model; "" for
// nothing.
func dearer(o *node) string {
	config := o.get("generationconfig")
	for key, values := range cheap {
		for _, n := range []*node{o.get(fold(key)), config.get(fold(key))} {
			if found := unlisted(n, values); found != "" {
				return fmt.Sprintf("%s %.40s", key, found)
			}
		}
	}
	if found := unlisted(config.get("responsemodalities"), cheap["modalities"]); found != "" {
		return fmt.Sprintf("responseModalities %.40s", found)
	}
	return walk(o.get("contents"), func(*node, string) bool { return false }, func(_ *node, name string, v *node) string {
		kind, _ := v.get("mimetype").text()
		if kind = strings.ToLower(kind); name == "inlinedata" && (strings.HasPrefix(kind, "audio/") || strings.HasPrefix(kind, "video/")) {
			return fmt.Sprintf("content of type %.40q", kind)
		}
		return ""
	})
}

// unlisted returns the first value that is not one of those, as it stands.
func unlisted(n *node, values []string) string {
	for _, v := range n.elements() {
		text, ok := v.text()
		if v.says() && !(ok && slices.Contains(values, strings.ToLower(text))) {
			return string(v.raw[:min(len(v.raw), 40)])
		}
	}
	return ""
}
