// Package certcrypto names kinds of keys and makes none.
package certcrypto

// KeyType names one.
type KeyType string

// Those that Traefik's settings know.
const (
	EC256   = KeyType("P256")
	EC384   = KeyType("P384")
	RSA2048 = KeyType("2048")
	RSA4096 = KeyType("4096")
	RSA8192 = KeyType("8192")
)
