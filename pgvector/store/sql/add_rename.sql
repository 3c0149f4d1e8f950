-- Every earlier name of the old name becomes one of the new name, which itself is none any more.
with freed as (
  delete from memory_renames where agent_identity = %(new)s
), followed as (
  update memory_renames set theme = %(new)s, renamed_at = clock_timestamp()
  where theme = %(old)s and agent_identity <> %(new)s
)
insert into memory_renames (agent_identity, theme, renamed_at) values (%(old)s, %(new)s, clock_timestamp())
on conflict (agent_identity) do update set theme = excluded.theme, renamed_at = excluded.renamed_at
where memory_renames.theme <> excluded.theme
