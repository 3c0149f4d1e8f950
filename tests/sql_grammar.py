"""Statements of SQL that look for rows of other themes, for hypothesis: ordinary ones, and those of an attacker.

They do not ask for what row security does not hide, which docs/security.md lists: estimates, sizes and statistics of
tables, system columns, ids out of sequences, times, locks, and whether a named person is known. Where rows are cut they
are ordered, because the order of rows without that is the planner's.
"""

from __future__ import annotations

from hypothesis import strategies as st

Text = st.SearchStrategy[str]

MINE, OTHERS = ("mine", "mine-new"), ("other", "secret", "dm-telegram-00000000000000aa", "")
VECTOR = "array_fill(1, array[384])::vector::halfvec"

# Columns of each table that tell something, those by which its rows are ordered, and values for a new row of theme {}.
PIECES = ("row_id::text", "row_id, piece", f"values ({{}}, {{n}}, 0, {VECTOR})")
TABLES = {
    "memory_entries": ("content", "id", "(agent_identity, id, target, content) values ({}, {n}, 'memory', {text})"),
    "conversations": ("content", "id", "(agent_identity, id, role, content) values ({}, {n}, 'user', {text})"),
    "facts": ("content", "id", "(agent_identity, id, kind, target, content, event_id) "
              "values ({}, {n}, 'V', {text}, 'c', '00000000-0000-0000-0000-00000000000{n}')"),
    "memory_history": ("content", "id", "(agent_identity, id, entry_id, target, content, created_at, updated_at, how,"
                       " gone_at, noted_at) values ({}, {n}, {n}, 'memory', {text}, '2026-01-01', '2026-01-01',"
                       " 'removed', '2026-01-02', '2026-01-02')"),
    "memory_entry_pieces": PIECES,
    "conversation_pieces": PIECES,
    "fact_pieces": PIECES,
    "memory_events": ("event_id::text", "event_id",
                      "values ({}, '00000000-0000-0000-0000-00000000000{n}', '2026-01-01')"),
    "memory_tombstones": ("home", "home", "values ({}, {text}, 'memory', 'k', '2026-01-01')"),
    "memory_withdrawals": ("session_id", "session_id", "values ({}, {text}, 'user', 'k', '2026-01-01', 0, '{{s}}')"),
    "memory_agents": ("session_id", "session_id", "(agent_identity, session_id) values ({}, {text})"),
    "memory_agent_edges": ("task", "id", "(agent_identity, id, task) values ({}, {n}, {text})"),
    "memory_words": ("word", "kind, word", "values ({}, 'turns', {text}, {n})"),
    "memory_person_links": ("person", "person", "values ({}, 'dm-person-000000000000000{n}', '2026-01-01')"),
    "memory_erasures": ("kind", "key", "(agent_identity, key, kind) values ({}, {text}, 'theme')"),
    "memory_pruned_turns": ("session_id", "session_id", "values ({}, {text}, 'k', {n}, '2026-01-01')"),
    "memory_renames": ("theme", "theme", "values ({}, {text}, '2026-01-01')"),
    "fact_scopes": ("label", "label", "(agent_identity, label) values ({}, {text})"),
}  # fmt: skip


def _texts(*words: str) -> Text:
    return st.sampled_from([f"'{word}'" for word in words])


numbers: Text = st.integers(0, 6).map(str)
themes: Text = _texts(*MINE, *OTHERS)
words: Text = _texts(
    "meadow", "mine", "secret", "about other", "%", "(", "*", "1", "\\", "dm-telegram-00000000000000aa"
)
tables: Text = st.sampled_from(sorted(TABLES))
# Temporary functions of the login, which the planner takes for cheap, tell what they are given.
LEAKS = (
    "create function pg_temp.leak(text) returns boolean language plpgsql cost 0.0001 as"
    " $$ begin raise notice 'seen: %', $1; return true; end $$",
    "create function pg_temp.strict_leak(text, text) returns boolean language plpgsql cost 0.0001 as"
    " $$ begin raise notice 'both: % %', $1, $2; return $1 < $2; end $$",
    "create operator pg_temp.<<< (function = pg_temp.strict_leak, leftarg = text, rightarg = text)",
)


def _conditions(alias: str, told: str) -> Text:
    one = st.one_of(
        st.just("true"),
        st.builds(f"{alias}.agent_identity = {{}}".format, themes),
        st.builds(f"{alias}.agent_identity <> {{}}".format, themes),
        st.builds(f"{alias}.agent_identity = any (array[{{}}, {{}}])".format, themes, themes),
        st.builds(f"{alias}.agent_identity ~ {{}}".format, words),
        st.builds(f"{told} ilike {{}}".format, words),
        st.builds(f"pg_temp.leak({told} || {{}})".format, words),
        st.builds(f"{told} operator(pg_temp.<<<) {{}}".format, words),
        st.builds(f"1 / (length({told}) - {{}} - 4) is not null".format, numbers),
        st.builds(f"{told}::int > {{}}".format, numbers),
        st.builds(f"exists (select from conversations c where c.agent_identity = {alias}.agent_identity and"
                  " c.content ilike {})".format, words),
        st.builds(f"case when {alias}.agent_identity = {{}} then (1 / 0)::text = '' else true end".format, themes),
        st.builds("exists (select from {} x where x.agent_identity = {})".format, tables, themes),
        st.builds("(select count(*) from {}) > {}".format, tables, numbers),
    )  # fmt: skip
    return st.one_of(
        one,
        st.builds("{} and {}".format, one, one),
        st.builds("({} or {})".format, one, one),
        st.builds("not {}".format, one),
    )


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query of one table or two."""
    table = draw(tables)
    told, order, _ = TABLES[table]
    told = f"t.{told}"
    where = draw(_conditions("t", told))
    by = ", ".join(f"t.{column}" for column in f"agent_identity, {order}".split(", "))
    other = draw(tables)
    lateral = f"cross join lateral (select count(*) from {other} y where y.agent_identity = t.agent_identity) as z (n)"
    joined = (
        f"join {other} o on o.agent_identity = t.agent_identity or {draw(_conditions('o', f'o.{TABLES[other][0]}'))}"
    )
    return draw(st.sampled_from([
        f"select count(*), min(t.agent_identity), max({told}) from {table} t where {where}",
        f"select t.agent_identity, {told} from {table} t where {where} order by {by}",
        f"select t.agent_identity, {told} from {table} t where {where} order by {by} limit {draw(numbers)}",
        f"select t.agent_identity, {told} from {table} t where {where} order by {by} for update skip locked",
        f"select distinct t.agent_identity from {table} t tablesample bernoulli (100) where {where} order by 1",
        f"select t.agent_identity, count(*) from {table} t where {where} group by rollup (1) order by 1",
        f"select row_to_json(t)::jsonb ->> 'agent_identity', {told} from {table} t where {where} order by {by}",
        f"select rank() over (order by {by}), {told} from {table} t where {where} order by {by}",
        f"select {told}, z.n from {table} t {lateral} where {where} order by {by}",
        f"select count(*) from {table} t {joined} where {where}",
        f"select t.agent_identity from {table} t where {where} except select agent_identity from {other} order by 1",
        f"with recursive r (n) as (select 1 union select n + 1 from r, {table} t where n < 3 and {where})"
        " select max(n) from r",
        f"select (select string_agg({told}, ',' order by {by}) from {table} t where {where})",
    ]))  # fmt: skip


@st.composite
def changes(draw: st.DrawFn) -> str:
    """A statement that inserts, updates or deletes."""
    table = draw(tables)
    told, order, row = TABLES[table]
    where = draw(_conditions("t", f"t.{told}"))
    new = row.format(draw(themes), n=draw(numbers), text=draw(words))
    key = f"agent_identity, {order}"
    other = draw(tables)
    column = told.partition("::")[0]
    return draw(st.sampled_from([
        f"insert into {table} {new}",
        f"insert into {table} {new} on conflict do nothing returning agent_identity, {told}",
        f"insert into {table} as t {new} on conflict ({key}) do update set {column} = t.{column} returning {told}",
        f"update {table} t set {column} = {column} where {where} returning agent_identity, {told}",
        f"update {table} t set agent_identity = {draw(themes)} where {where}",
        f"update {table} t set {column} = {column} from {other} o where o.agent_identity = {draw(themes)} and {where}",
        f"delete from {table} t where {where} returning agent_identity, {told}",
        f"delete from {table} t using {other} o where o.agent_identity = {draw(themes)} and {where}",
        f"with gone as (delete from {table} t where {where} returning 1) select count(*) from gone",
        f"with made as (insert into {table} {new} returning agent_identity) select * from made,"
        f" (select count(*) from {other}) c",
        f"merge into {table} t using (values ({draw(themes)})) as v (theme) on t.agent_identity = v.theme and {where}"
        " when matched then delete",
        f"truncate {table}", f"lock table {table} in share mode",
    ]))  # fmt: skip


functions: Text = st.one_of(
    st.builds("select memory_theme_granted({})".format, themes),
    st.builds("select * from admit_memory_themes(array[{}, {}])".format, _texts(*MINE, "other", "secret", ""), words),
    st.just("select memory_theme_prefixes(), array(select memory_themes())"),
    st.builds(
        "select * from memory_rows_with_words({}, {}::tsquery, array[{}, {}], {}, {}, {}, {}) order by 1, 2".format,
        _texts("turns", "entries", "facts", "x; select"), _texts("meadow", "@other", "!meadow", "meadow | @secret"),
        themes, themes, themes, _texts("^$", "(", "^(?!other)"), st.just("999"), st.sampled_from(["true", "false"])),
    st.builds(
        "select * from memory_rows_with_words({}, {}::tsquery, null, {}, {}, 999, {}) order by 1, 2".format,
        _texts("turns", "entries", "facts"), _texts("meadow", "!x", "@secret"), themes,
        _texts("^$", "(", "mine", "[[:x:]]"), st.sampled_from(["true", "false"])),
    st.builds(
        "select * from memory_entries_with_texts(array['about other meadow 1', {}], 'memory', {}, {})".format,
        words, themes, _texts("", "h")),
    st.builds("select * from prune_memory_history({})".format, numbers),
    st.builds("select complete_memory_history({}, {}, 'moved', '', now(), null)".format, themes, numbers),
    st.builds("select settle_memory_history({}, {}, array[1, 2, 3, {}]::bigint[])".format, themes, themes, numbers),
    st.builds("select * from move_memory_history({}, {}, '', '{{}}', 9) order by 1".format, themes, themes),
    st.builds("select * from forget_memory_trial({}, {})".format, themes, words),
    st.builds("select claim_memory_setting({}, {})".format, _texts("person_key", "reembed", "erasure_key"), words),
    st.builds("select protect_memory_table({}), unprotect_memory_table({})".format, tables.map(repr), tables.map(repr)),
    st.builds("select memory_theme_has_rows({})".format, themes),
    st.builds("select word, ndoc from ts_stat('select search from {}') order by 1".format,
              st.sampled_from(["conversations", "memory_entries", "facts"])),
    st.builds("select length(table_to_xml({}, true, false, '')::text) > 0".format, tables.map(repr)),
    st.builds("select query_to_xml('select agent_identity from {} order by 1', true, false, '')::text".format, tables),
    st.builds("select attname, most_common_vals::text from pg_stats where tablename = {}".format, tables.map(repr)),
    st.just("select * from memory_theme_grants"),
)  # fmt: skip

settings: Text = st.one_of(
    st.builds("set hermes_pgvector.themes = {}".format, themes),
    st.builds("set hermes_pgvector.themes = E'{}\\n{}'".format, st.sampled_from(["mine", "*", "**", ""]),
              st.sampled_from(["other", "*", "**", "secret"])),
    st.sampled_from([
        "reset hermes_pgvector.themes", "set row_security = off", "set row_security = on", "set role none", "reset all",
        "set session authorization default", "set search_path = pg_temp, public", "set enable_seqscan = off",
        "set enable_indexscan = off", "set session_replication_role = replica", "set constraints all deferred",
        "set plan_cache_mode = force_generic_plan",
    ]),
)  # fmt: skip


def _wrapped(statement: str) -> Text:
    """The statement as other ways of SQL run it."""
    quoted = statement.replace("'", "''")
    return st.sampled_from([
        f"do $do$ declare r record; begin for r in execute '{quoted}' loop raise notice '%', r; end loop;"
        " exception when others then raise notice '% %', sqlstate, sqlerrm; end $do$",
        f"prepare p as {statement}; execute p; execute p; deallocate p",
        f"declare c cursor for {statement}; fetch all from c; close c",
        f"explain (costs off) {statement}",
        f"create temp table got as {statement}; select count(*) from got; drop table got",
        f"create temp view seen as {statement}; select count(*) from seen; drop view seen",
        f"copy ({statement}) to stdout",
    ])  # fmt: skip


copies: Text = st.builds("copy {} {}".format, tables, st.sampled_from(["to stdout", "(agent_identity) to stdout"]))
statements: Text = st.one_of(queries(), changes(), functions, settings, copies, queries().flatmap(_wrapped),
                             changes().flatmap(_wrapped))  # fmt: skip
programs = st.lists(statements, min_size=1, max_size=4)
