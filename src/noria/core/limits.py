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
KEPT_STATEMENTS = 4_096  # parsed statements by text, and as many by shape; an application has hundreds
KEPT_TEXT_BYTES = 8 * 2**20  # of their texts: what is parsed of one takes some fifty times as much
VIEW_BINDS = 100  # times that a read is bound again because its view was redefined meanwhile; then it is error 1412
WORKER_BOOTSTRAP_ROWS = 500_000  # full state over more base rows than this is computed by Spark
MAX_PACKET_BYTES = 64 * 2**20  # max_allowed_packet: a longer statement is refused
DEFAULT_MEMORY_BYTES = 2**30  # a limit by default: users of such systems ask for one first
STORE_SHARE = 1 / 8  # of a memory limit is for the store: half its block cache, half its write buffers
LEASE_MS = 2_000  # a worker that has not heard from its front end for so long exits
KERNEL_S = 120  # a process that computes without a sign of life for so long is given up
DEAF_S = 30  # a worker that goes on with a cancelled request for so long is ended, and the request blamed
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
POISON_DEATHS = 2  # what ended a worker so often is refused from then on
POISON_KEPT = 1_000  # of such requests the latest are remembered, and of suspects as many
REQUEST_BYTES = 512 * 2**20  # an intermediate result of one request, in the worker
READ_HOLD_MS = 2_000  # an ad-hoc SELECT keeps its worker from others no longer: then Spark answers it
VIEW_HOLD_MS = 10_000  # so long may an upquery of a named view: nobody else can answer it
MAX_EXECUTION_MS = 60_000  # max_execution_time by default
SHOWN_STATEMENT_CHARACTERS = 100  # of a statement in SHOW PROCESSLIST (FULL: all)
OFF_LOOP_CHARACTERS = 4_096  # a longer text is parsed beside the loop
OFF_LOOP_ROWS = 10_000  # a longer result is encoded beside the loop
ADHOC_REFUSED = 1_000  # SELECTs that were found too costly for an ad-hoc view are remembered, so many
LONGEST_EXECUTION_MS = 3_600_000  # max_execution_time = 0: no statement runs for ever
BACKUP_LINE_S = 1  # between two lines to who copies a checkpoint: so soon is it noticed that he went away

SPARK_HOST_HEAP_BYTES = 512 * 2**20  # the JVM that hosts the workers: near the least that Spark starts with
SPARK_HEAP_BYTES = 2**30  # the JVM of batch jobs; sorts and joins beyond it spill to disk
SPARK_RESULT_BYTES = 128 * 2**20  # a query's answer, held whole by JVM, driver and front end, ten times as objects
SPARK_RESULT_ROWS = 1_000_000  # likewise
SPARK_QUERIES = 4  # run on Spark at once: more only divide the same cores and memory
SPARK_QUEUE = 200  # queries that wait for one of these slots; one more is refused with error 1637
SPARK_BULK_JOBS = 2  # loads and verifications at once; first states have as many slots of their own
SPARK_WAIT_S = 120  # a job waits so long for a driver that is starting, then fails
SPARK_START_S = 180  # a driver that has no session by then is killed
SPARK_BEAT_S = 1.0  # between two questions to a driver whether it lives
SPARK_STOPPED_BEATS = 5  # unanswered by a process that the kernel calls stopped: it is replaced
SPARK_SILENT_BEATS = 60  # unanswered by any other: collecting garbage or waiting for a processor takes less
SPARK_CANCEL_S = 20  # a cancelled job that still runs by then has its driver replaced
SNAPSHOT_KEEP_S = 10  # a snapshot that no query has used for so long is removed: it holds on to disk space
SNAPSHOT_WAIT_S = 60  # a query waits so long for a worker that takes its snapshot, then fails
