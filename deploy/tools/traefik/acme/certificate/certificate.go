// Package certificate says what would be asked for.
package certificate

import "github.com/go-acme/lego/v5/certcrypto"

// ObtainRequest asks for a certificate.
type ObtainRequest struct {
	Domains          []string
	Bundle           bool
	EmailAddresses   []string
	Profile          string
	PreferredChain   string
	EnableCommonName bool
	KeyType          certcrypto.KeyType
}

// RenewOptions ask for one more.
type RenewOptions struct {
	Bundle           bool
	EmailAddresses   []string
	Profile          string
	PreferredChain   string
	EnableCommonName bool
}

// Resource would be one.
type Resource struct {
	ID          string
	Domains     []string
	PrivateKey  []byte
	Certificate []byte
}
