select login::text as login, pattern, admitted, granted_at
from memory_theme_grants
where %(login)s = '' or login = %(login)s
order by login, right(pattern, 1) <> '*', pattern
limit %(limit)s
