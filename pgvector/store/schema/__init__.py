"""The schema: the migrations, what must hold before they are applied, and the check of it at run time."""
