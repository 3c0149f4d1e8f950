-- A scope that the theme has stays as it is there.
insert into fact_scopes (agent_identity, label, opened_at, written_at, heard_at, closed_at, metadata)
values (%(theme)s, %(label)s, %(opened_at)s, %(written_at)s, %(written_at)s, %(closed_at)s, %(metadata)s::jsonb)
on conflict do nothing
