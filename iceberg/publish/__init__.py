"""Tables published to other catalogs: their entries follow the pointers of Floe's own."""
