"""Jobs that propose what is over: transactions past their timeout, positions past their retention."""
