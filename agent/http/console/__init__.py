"""The console: pages about the cluster, made on the agent, that show whoever asks what he may see."""

from agent.http.console.routes import console_routes

__all__ = ["console_routes"]
