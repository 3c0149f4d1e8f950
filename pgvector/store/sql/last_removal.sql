-- The time at which a home removed an entry with this text last, when that was after a time.
select max(at) as at from memory_tombstones
where home = %(home)s and home <> '' and target = %(target)s and content_key = content_key(%(content)s)
having max(at) > %(at)s
