"""Do the chart's alerts ring when something is wrong? `make alarms`; see __main__.py."""
