insert into memory_theme_grants (login, pattern) values (%(login)s, %(pattern)s) on conflict do nothing
