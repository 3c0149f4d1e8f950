-- Whether the transaction has written anything.
select txid_current_if_assigned() is not null as wrote
