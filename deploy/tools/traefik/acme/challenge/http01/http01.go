// Package http01 has the path of challenges over HTTP.
package http01

import "time"

// PathPrefix begins it (RFC 8555, 8.3).
const PathPrefix = "/.well-known/acme-challenge/"

// ChallengeOption changes nothing.
type ChallengeOption struct{}

// SetDelay is one option.
func SetDelay(time.Duration) ChallengeOption { return ChallengeOption{} }
