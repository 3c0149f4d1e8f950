select agent_identity, '' as role, $text as content from $table where $current order by $time desc limit %(limit)s
