"""Certificates for tests: as local clusters have them."""

from __future__ import annotations

from deploy.services.certificates import Authority, Pair

__all__ = ["Authority", "Pair"]
