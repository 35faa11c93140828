"""Records without the fields that their schema marks as not for everybody."""
