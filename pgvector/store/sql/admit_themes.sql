-- Without row security all are.
select admit_memory_themes(%(themes)s::text[]) as theme
