// Package acme has no accounts.
package acme

// Account is nobody's.
type Account struct{}

// ExtendedAccount is nobody's.
type ExtendedAccount struct {
	Account
	Location string
}
