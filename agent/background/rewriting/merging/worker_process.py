"""Merging's helper process: `python -m agent.background.rewriting.merging.worker_process`."""

from __future__ import annotations

from agent.background.rewriting.merging.worker import Session
from agent.background.rewriting.worker import serve_session

if __name__ == "__main__":
    serve_session(Session())
