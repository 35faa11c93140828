"""The version of this code, as its distribution says."""

from importlib import metadata

VERSION = metadata.version("floe")
