// Package ext is what Traefik's own folder of this name is: places for fields that others add.
package ext

// HTTP has none.
type HTTP struct{}

// Router has none.
type Router struct{}
