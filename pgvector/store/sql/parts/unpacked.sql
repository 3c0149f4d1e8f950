case when pg_column_compression(search) is null and pg_column_size(search) < 2000 then search else strip(search) end
