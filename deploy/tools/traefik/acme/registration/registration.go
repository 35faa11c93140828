// Package registration says how one would register.
package registration

import (
	"crypto"

	"github.com/go-acme/lego/v5/acme"
)

// RegisterOptions are for an account.
type RegisterOptions struct{ TermsOfServiceAgreed bool }

// RegisterEABOptions are for an account that is known elsewhere.
type RegisterEABOptions struct {
	TermsOfServiceAgreed bool
	Kid                  string
	HmacEncoded          string
}

// User would be whose account it is.
type User interface {
	GetEmail() string
	GetRegistration() *acme.ExtendedAccount
	GetPrivateKey() crypto.Signer
}
