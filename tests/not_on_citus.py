"""Marks of tests whose subject a Citus cluster does not have; docs/scale.md says what to do there."""

from __future__ import annotations

import pytest

row_security = pytest.mark.not_on_citus("Citus distributes no policy that has a subquery")
two_roles = pytest.mark.not_on_citus("Citus refuses a transaction in which two roles change rows of a theme")
earlier_release = pytest.mark.not_on_citus("release 2.0.0 and earlier ones cannot use a cluster")
two_servers = pytest.mark.not_on_citus("the test has a cluster beside the server of the run")
plans = pytest.mark.not_on_citus("the coordinator plans for its nodes: test_citus.py has their plans")
row_locks = pytest.mark.not_on_citus("Citus locks no rows of several themes: a lease keeps processes apart")
shards = pytest.mark.not_on_citus("rows of the other themes are in other shards")
messages = pytest.mark.not_on_citus("Citus passes on the whole text of a message, so settings are sent one by one")
triggers = pytest.mark.not_on_citus("Citus refuses the trigger by which the test disturbs a table")
bare_database = pytest.mark.not_on_citus("databases of a cluster have their extensions before `migrate`")
files = pytest.mark.not_on_citus("the test reads the files of one server")
reembed = pytest.mark.not_on_citus("`reembed` does not work there")
per_theme = pytest.mark.not_on_citus("there several themes are asked one after the other")
workers = pytest.mark.not_on_citus("`doctor` does not see dead rows and statistics of the workers")
effects = pytest.mark.not_on_citus("there other checks of `doctor` notice the fault, too")
waits = pytest.mark.not_on_citus("the test waits for a lock to be seen, which is at a worker there")
all_shards = pytest.mark.not_on_citus("pages about all themes ask every shard there, which takes longer than a scan")
long = pytest.mark.not_on_citus("its thousands of steps take half an hour there; a shorter test runs there")
