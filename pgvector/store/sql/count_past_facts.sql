select count(*)::int as facts
from facts
where agent_identity = %(theme)s and status in ('superseded', 'archived')
  and (%(scope)s = '' or scope = %(scope)s)
  and changed_at <= %(at)s::timestamptz - make_interval(days => %(days)s)
  and (used_at is null or %(days)s = 0 or used_at <= %(at)s::timestamptz - make_interval(days => %(days)s))
