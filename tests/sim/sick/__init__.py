"""One agent is sick and the rest are well: clients go on, it steps aside and comes back. See spells.py."""
