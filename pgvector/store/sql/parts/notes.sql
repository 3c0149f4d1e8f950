-- The values in the metadata of a row that are none of this package: what clients and imports have noted, as JSON. Looking at all
-- of the metadata first is faster.
case when metadata::text ilike %(noted)s then
  jsonb_path_query_array(metadata, '$.keyvalue() ? (!(@.key like_regex "^(author|child_identity|client|closed|context|delegated_to|'
    'history_id|linked_account|origin|released|relieved_from|replayed|saves|session_id|sessions|tools)$")).value', '{}', true)::text
  else '' end
