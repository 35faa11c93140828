"""Messages that surely obey their rules: simple rules, compiled, without the library."""
