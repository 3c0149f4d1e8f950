"""erase: delete rows for good, in the database and in this home, and say what still holds them."""
