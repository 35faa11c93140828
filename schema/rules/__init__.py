"""Rules of protovalidate: which messages have any, what records break, which rules cannot be used."""
