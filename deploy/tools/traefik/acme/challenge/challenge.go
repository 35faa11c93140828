// Package challenge has the shape of who answers challenges.
package challenge

import "context"

// Provider answers them.
type Provider interface {
	Present(ctx context.Context, domain, token, keyAuth string) error
	CleanUp(ctx context.Context, domain, token, keyAuth string) error
}
