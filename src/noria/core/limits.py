"""Every bound of the system: name, value with its unit last, reason."""

NULL_CODE = -(2**63)  # the one int64 that is no value: SQL's NULL
ERROR_CODE = -(2**63) + 1  # a value whose evaluation failed (overflow); reading it raises MySQL's error 1690
MIN_INT = -(2**63) + 2  # the least integer that can be stored; BIGINT's two least values are refused
MAX_INT = 2**63 - 1
MAX_DECIMAL_DIGITS = 18  # what an int64 holds for every digit pattern

ADHOC_FULL_ROWS = 200_000  # an ad-hoc SELECT never creates full state over more base rows than this
LOOKUP_KEYS = 4_096  # a SELECT whose IN lists ask for more keys of one view is answered by Spark: it is a scan
TOP_ROWS = 10_000  # LIMIT and OFFSET up to so many rows are kept in order; beyond, all rows are kept
AFTER_SYMBOL_BYTES = 64 * 2**20  # texts that a front end keeps to compare looked-up rows; then it starts anew
ADHOC_VIEWS = 500  # least recently used ad-hoc views beyond this are dropped
WORKER_BOOTSTRAP_ROWS = 500_000  # full state over more base rows than this is computed by Spark
MAX_BRACKETS = 30  # brackets, CASE … END within each other: the parser takes 25 stack frames for each, of 1,000
MAX_DEPTH = 100  # operators within each other, as in a + a + …; AND and OR of any number are one (error 1436)
MAX_PLAN_DEPTH = 80  # nodes of a plan above each other, as of views over views (error 1436)
MAX_TERMS = 10_000  # AND, OR and other operators of one statement: beyond, planning takes seconds (error 1436)
MAX_COLUMNS = 4_096  # of a table, a view or a SELECT, as MySQL has it (error 1117)
MAX_TABLES = 61  # of one FROM, as MySQL has it (error 1116)
MAX_DIGITS = 1_000  # of a number in a text: no type holds as many (error 1367)
MAX_NAME_CHARS = 64  # of a table, view or column; an alias has 256 (error 1059)
MAX_ALIAS_CHARS = 256  # of a column that a SELECT names
MAX_PACKET_BYTES = 64 * 2**20  # max_allowed_packet: a longer statement is refused
VERIFY_KEYS = 200  # of a view of which fewer are present, so many are derived for `noria verify` to compare
DEFAULT_MEMORY_BYTES = 2**30  # a limit by default: users of such systems ask for one first
STORE_SHARE = 1 / 8  # of a memory limit is for the store: half its block cache, half its write buffers
LEASE_MS = 2_000  # a worker that has not heard from its front end for so long exits
HEARTBEAT_MS = 250  # how often the front end renews a lease
STORY_EVENTS = 500  # what a story remembers: several ticks of a small graph

MYSQL_CONNECTIONS = 4_096  # max_connections: one more is refused with error 1040
MYSQL_STATEMENTS = 16_382  # prepared statements of one session (MySQL's own default for a server): error 1461
MYSQL_HANDSHAKE_BYTES = 64 * 2**10  # a packet of somebody who has not proved his password yet
MYSQL_HANDSHAKE_S = 10  # connect_timeout: a client that has not logged in by then is hung up on
MYSQL_IDLE_S = 28_800  # wait_timeout: a connection silent for so long (at most twice) is closed
MYSQL_READ_AHEAD_BYTES = 2**20  # what is read of a client's next commands while one is being answered
IDLE_MS = 5  # a worker's slice of work that can wait, between looks at its socket
GROUP_STATEMENTS = 1_000  # at most so many statements of concurrent clients share one synced commit
GROUP_ROWS = 10_000  # nor more rows than this: a later client waits no longer than that commit
WRITES_IN_FLIGHT = 2  # the worker takes one large write while the next is on its way
PIPELINED_ROWS = 1_000  # smaller writes wait for the one in flight and share a commit: measured 1.4 times faster
POISON_DEATHS = 3  # a change under which the worker died so often is given up, its outcome unknown
