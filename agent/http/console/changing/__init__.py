"""Changes from the console: a form, a preview that says what will change, a confirmation. See README.md."""
