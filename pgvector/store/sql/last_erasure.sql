-- By the index of the times alone. A session that was dropped later by its theme has a mark, too.
select max(at) as at from memory_erasures
