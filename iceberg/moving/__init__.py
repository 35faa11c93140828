"""Tables of a copied bucket, whose metadata names the bucket it was copied from: told where they are."""
