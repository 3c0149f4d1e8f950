delete from memory_theme_grants where login = %(login)s and pattern = %(pattern)s
