-- The time at which a home removed an entry with this text last, and the theme, when that was after a time.
select agent_identity as theme, at from memory_tombstones
where home = %(home)s and home <> '' and target = %(target)s and content_key = content_key(%(content)s) and at > %(at)s
order by at desc
limit 1
