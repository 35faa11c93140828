"""Several agents on one machine (`agent.processes`): one process that watches the others."""
