"""HTTP: health, metrics, status, administration and the Iceberg REST catalog."""

from agent.http.app import build
from agent.http.health import HealthRoutes
from agent.http.inside import Inside
from agent.http.parts import Parts
from agent.http.server import HttpServer

__all__ = ["HealthRoutes", "HttpServer", "Inside", "Parts", "build"]
