"""Grafana's dashboards of Floe, built by `python -m deploy.dashboards`; see README.md."""
