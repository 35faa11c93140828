"""The version of this code; pyproject.toml's, which an image without the distribution does not carry."""

VERSION = "0.1.0"
