// Package tlsalpn01 has the name of challenges in TLS.
package tlsalpn01

import (
	"errors"
	"time"
)

// ACMETLS1Protocol is their protocol (RFC 8737, 6.2).
const ACMETLS1Protocol = "acme-tls/1"

// ChallengeOption changes nothing.
type ChallengeOption struct{}

// SetDelay is one option.
func SetDelay(time.Duration) ChallengeOption { return ChallengeOption{} }

// ChallengeBlocks fails.
func ChallengeBlocks(string, string) ([]byte, []byte, error) {
	return nil, nil, errors.New("built without ACME")
}
