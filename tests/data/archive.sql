-- Rows in every table, with what is hard to write in JSON.
insert into hermes_pgvector_settings values ('embedding_model', %(model)s);
insert into memory_entries (id, agent_identity, home, target, content, embedding, search, created_at, updated_at, metadata,
    tags, expires_at, replaces) values
  (101, 'ops', %(home)s, 'memory', 'Staging runs on port 5433.', %(vector)s, to_tsvector('english', 'Staging runs on port 5433.'),
    '2026-01-02 03:04:05.678901+00', '2026-02-03+00', '{"n": 1.10, "big": 12345678901234567890123456789.5}', '{db,ops}', null, null),
  (102, 'ops', '', 'user', E'Zeilen\numbruch \u00e9\u4e2d "quoted" \\ \x7f', null, null, '2026-01-02+00', '2026-02-03+00', '{}', null,
    '2031-01-01+00', '{77,66}'),
  (103, 'dev', '', 'memory', 'An entry that has expired already.', null, null, '2025-01-02+00', '2025-02-03+00', '{}', null,
    '2025-03-01+00', null),
  (104, 'dm-telegram-1f3a5c7e9b0d2f46', '', 'memory', 'A private entry.', null, null, '2025-01-02+00', 'infinity', '{}', null, null, null);
insert into memory_history (agent_identity, entry_id, target, content, created_at, updated_at, metadata, gone_at, how,
    session_id, replaced_by, tags) values
  ('ops', 77, 'user', 'Earlier text', '2026-01-01+00', '2026-01-01+00', '{"a": [null]}', '2026-02-03+00', 'replaced', 's1', 'x', '{a}'),
  ('ops', 66, 'user', 'Earliest text', '2026-01-01+00', '2026-01-01+00', '{}', '2026-01-20+00', 'replaced', '', null, null),
  ('ops', 55, 'memory', 'Gone text', '2026-01-01+00', '2026-01-01+00', '{}', '2026-01-20+00', 'removed', '', null, null);
insert into conversations (id, agent_identity, session_id, parent_session_id, role, content, ts, embedding, search, metadata)
  select n, 'ops', 's' || n %% 3, '', case n %% 2 when 0 then 'user' else 'assistant' end, 'Turn number ' || n,
    '2026-03-01 12:00+00'::timestamptz + n * interval '1.000001 s', %(vector)s, to_tsvector('english', 'Turn number ' || n), '{"origin": "x"}'
  from generate_series(1, 450) as n;
insert into conversation_pieces select 'ops', 7, piece, %(vector)s from generate_series(0, 2) as piece;
insert into facts (id, agent_identity, event_id, kind, target, scope, content, status, superseded_by, written_at, changed_at, used_at,
    uses, session_id, embedding, search, metadata) values
  (2, 'ops', '00000000-0000-0000-0000-000000000001', 'V', 'port', 'db', '5432', 'superseded', 3, '2026-01-01+00', '2026-01-02+00', null, 0, 's1',
    null, to_tsvector('english', 'port: 5432'), '{}'),
  (3, 'ops', '00000000-0000-0000-0000-000000000002', 'V', 'port', 'db', '5433', 'active', null, '2026-01-02+00', '2026-01-02+00', '2026-01-03+00', 4,
    's2', %(vector)s, to_tsvector('english', 'port: 5433'), '{"linked_account": "x"}');
insert into fact_scopes values ('ops', 'db', 's1', '2026-01-01+00', '2026-01-02+00', '2026-01-03+00', null, 5, 1, '{"a": 1}');
insert into memory_agent_edges (agent_identity, event_id, parent_session_id, child_session_id, task, result, at, metadata)
  values ('ops', '00000000-0000-0000-0000-000000000003', 's1', 'c1', 'Do it', 'Done', '2026-01-01+00', '{}');
insert into memory_withdrawals values ('ops', 's1', 'assistant', content_key('taken back'), '2026-01-01+00', 0, '{s1,s0}');
insert into memory_tombstones values ('ops', %(home)s, 'memory', content_key('Gone text'), '2026-01-01+00');
insert into memory_person_links values ('dm-signal-1f3a5c7e9b0d2f46', 'dm-person-0123456789abcdef', '2026-01-01+00');
insert into memory_events values ('ops', '00000000-0000-0000-0000-000000000004', '2026-01-01+00');
insert into memory_renames values ('operations', 'ops', '2026-01-01+00');
insert into memory_pruned_turns values ('ops', 's1', content_key('pruned'), 2, '2026-01-01+00');
insert into hermes_pgvector_settings values ('erasure_key', repeat('5f', 32));
insert into memory_erasures values ('ops', content_key('erased'), 'turns', '2026-01-01+00'),
  ('operations', content_key('erased'), 'turns', '2026-01-01+00');
