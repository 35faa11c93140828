// Package lego has a client that refuses everything.
package lego

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/go-acme/lego/v5/acme"
	"github.com/go-acme/lego/v5/certificate"
	"github.com/go-acme/lego/v5/challenge"
	"github.com/go-acme/lego/v5/challenge/dns01"
	"github.com/go-acme/lego/v5/challenge/http01"
	"github.com/go-acme/lego/v5/challenge/tlsalpn01"
	"github.com/go-acme/lego/v5/registration"
)

// DirectoryURLLetsEncrypt is the default of a setting.
const DirectoryURLLetsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

var errNone = errors.New("built without ACME")

// Config is of a client.
type Config struct {
	CADirURL    string
	UserAgent   string
	Certificate struct{ Timeout time.Duration }
	HTTPClient  *http.Client
}

// Client is never made.
type Client struct {
	Challenge    challenges
	Certificate  certificates
	Registration registrations
}

type (
	challenges    struct{}
	certificates  struct{}
	registrations struct{}
)

// NewConfig is an empty one.
func NewConfig(registration.User) *Config { return &Config{} }

// NewClient fails.
func NewClient(*Config) (*Client, error) { return nil, errNone }

// CreateCertPool fails.
func CreateCertPool([]string, bool) (*x509.CertPool, error) { return nil, errNone }

func (challenges) SetDNS01Provider(challenge.Provider, ...dns01.ChallengeOption) error { return errNone }

func (challenges) SetHTTP01Provider(challenge.Provider, ...http01.ChallengeOption) error { return errNone }

func (challenges) SetTLSALPN01Provider(challenge.Provider, ...tlsalpn01.ChallengeOption) error {
	return errNone
}

func (certificates) Obtain(context.Context, certificate.ObtainRequest) (*certificate.Resource, error) {
	return nil, errNone
}

func (certificates) Renew(
	context.Context, certificate.Resource, *certificate.RenewOptions,
) (*certificate.Resource, error) {
	return nil, errNone
}

func (registrations) Register(context.Context, registration.RegisterOptions) (*acme.ExtendedAccount, error) {
	return nil, errNone
}

func (registrations) RegisterWithExternalAccountBinding(
	context.Context, registration.RegisterEABOptions,
) (*acme.ExtendedAccount, error) {
	return nil, errNone
}
