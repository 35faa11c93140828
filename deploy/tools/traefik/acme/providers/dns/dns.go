// Package dns knows no provider of DNS.
package dns

import (
	"errors"

	"github.com/go-acme/lego/v5/challenge"
)

// NewDNSChallengeProviderByName fails.
func NewDNSChallengeProviderByName(string) (challenge.Provider, error) {
	return nil, errors.New("built without ACME")
}
