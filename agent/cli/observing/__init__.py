"""Looking at a whole cluster over HTTP: `floe doctor`, `floe top`, `floe support-bundle`."""
