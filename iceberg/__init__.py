"""Every topic as an Apache Iceberg table: mapping, ledger, committer, catalog."""
