// Package dns01 asks no DNS.
package dns01

import (
	"strings"
	"time"
)

// Options say whom to ask.
type Options struct{ RecursiveNameservers []string }

// Client asks nobody.
type Client struct{}

// ChallengeOption changes nothing.
type ChallengeOption struct{}

// NewClient is one that asks nobody.
func NewClient(*Options) *Client { return &Client{} }

// SetDefaultClient does nothing.
func SetDefaultClient(*Client) {}

// CondOptions is one option.
func CondOptions(bool, ...ChallengeOption) ChallengeOption { return ChallengeOption{} }

// DisableAuthoritativeNssPropagationRequirement is one option.
func DisableAuthoritativeNssPropagationRequirement() ChallengeOption { return ChallengeOption{} }

// DisableRecursiveNSsPropagationRequirement is one option.
func DisableRecursiveNSsPropagationRequirement() ChallengeOption { return ChallengeOption{} }

// PropagationWait is one option.
func PropagationWait(time.Duration, bool) ChallengeOption { return ChallengeOption{} }

// UnFqdn is the name without the dot at its end.
func UnFqdn(name string) string { return strings.TrimSuffix(name, ".") }
