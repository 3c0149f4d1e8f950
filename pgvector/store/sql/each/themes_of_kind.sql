-- The themes of a scope, the largest first.
select agent_identity as theme from $table
where $scope
  and $current
group by agent_identity
order by count(*) desc, agent_identity
limit %(limit)s
