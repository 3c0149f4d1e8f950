(agent_identity, session_id) in (
    select agent_identity, metadata ->> 'session_id' from memory_entries where $scope and $live and $tagged_entries)
