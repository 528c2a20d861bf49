"""The numbers and SQLSTATEs of errors, under MySQL's names for them.  Write `SqlError(*NAME, text)`."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """An error's number and its five-letter SQLSTATE."""

    number: int
    state: str


DB_CREATE_EXISTS = Code(1007, "HY000")  # a database of this name exists
DB_DROP_EXISTS = Code(1008, "HY000")  # there is no database of this name to drop
DISK_FULL = Code(1021, "HY000")  # no space is left on the device
CON_COUNT_ERROR = Code(1040, "08004")  # too many connections
OUT_OF_RESOURCES = Code(1041, "HY000")  # memory, descriptors or Spark are exhausted
DBACCESS_DENIED = Code(1044, "42000")  # no access to this database
ACCESS_DENIED = Code(1045, "28000")  # wrong user or password
NO_DB = Code(1046, "3D000")  # no database selected
UNKNOWN_COM = Code(1047, "08S01")  # an unknown command of the protocol
BAD_NULL = Code(1048, "23000")  # NULL in a column that is NOT NULL
BAD_DB = Code(1049, "42000")  # unknown database
TABLE_EXISTS = Code(1050, "42S01")  # a table or view of this name exists
BAD_TABLE = Code(1051, "42S02")  # unknown table in DROP
AMBIGUOUS_FIELD = Code(1052, "23000")  # a column name that several tables have
SERVER_SHUTDOWN = Code(1053, "08S01")  # the server ends
BAD_FIELD = Code(1054, "42S22")  # unknown column
WRONG_FIELD_WITH_GROUP = Code(1055, "42000")  # a selected column that is not grouped
WRONG_GROUP_FIELD = Code(1056, "42000")  # GROUP BY an aggregate
TOO_LONG_IDENT = Code(1059, "42000")  # a name is too long
DUP_FIELDNAME = Code(1060, "42S21")  # a column name occurs twice
DUP_KEYNAME = Code(1061, "42000")  # an index name occurs twice
DUP_ENTRY = Code(1062, "23000")  # a value of a unique key occurs twice
WRONG_FIELD_SPEC = Code(1063, "42000")  # a wrong attribute for a column
PARSE_ERROR = Code(1064, "42000")  # the text is no SQL that is known here
EMPTY_QUERY = Code(1065, "42000")  # the text is empty
NONUNIQ_TABLE = Code(1066, "42000")  # a table name or alias occurs twice
INVALID_DEFAULT = Code(1067, "42000")  # a default value that the column cannot store
MULTIPLE_PRI_KEY = Code(1068, "42000")  # two primary keys
KEY_COLUMN_DOES_NOT_EXIST = Code(1072, "42000")  # a key names an unknown column
TOO_BIG_FIELDLENGTH = Code(1074, "42000")  # a column is too long
WRONG_AUTO_KEY = Code(1075, "42000")  # AUTO_INCREMENT without a key
FILE_EXISTS = Code(1086, "HY000")  # a file or directory exists
CANT_REMOVE_ALL_FIELDS = Code(1090, "42000")  # a table needs a column
CANT_DROP_FIELD_OR_KEY = Code(1091, "42000")  # there is no such column or key to drop
NO_SUCH_THREAD = Code(1094, "HY000")  # unknown connection
NO_TABLES_USED = Code(1096, "HY000")  # * without a table
TABLE_NOT_LOCKED_FOR_WRITE = Code(1099, "HY000")  # the session has locked the table for reading only
TABLE_NOT_LOCKED = Code(1100, "HY000")  # the session has not locked the table
WRONG_DB_NAME = Code(1102, "42000")  # no name for a database
WRONG_TABLE_NAME = Code(1103, "42000")  # no name for a table
TOO_BIG_SELECT = Code(1104, "42000")  # a result is too large
UNKNOWN_ERROR = Code(1105, "HY000")  # every other error
UNKNOWN_TABLE = Code(1109, "42S02")  # an unknown table in a statement
FIELD_SPECIFIED_TWICE = Code(1110, "42000")  # a column is assigned twice
INVALID_GROUP_FUNC_USE = Code(1111, "HY000")  # an aggregate in a wrong place
TABLE_MUST_HAVE_COLUMNS = Code(1113, "42000")  # a table needs a column
TABLE_FULL = Code(1114, "HY000")  # a state is too large for memory
UNKNOWN_CHARACTER_SET = Code(1115, "42000")  # unknown character set
TOO_MANY_TABLES = Code(1116, "HY000")  # too many tables in a join
TOO_MANY_FIELDS = Code(1117, "HY000")  # too many columns
HOST_IS_BLOCKED = Code(1129, "HY000")  # too many broken connections from a host
WRONG_VALUE_COUNT_ON_ROW = Code(1136, "21S01")  # as many values as columns are needed
INVALID_USE_OF_NULL = Code(1138, "22004")  # NULL where rows may have none
MIX_OF_GROUP_FUNC_AND_FIELDS = Code(1140, "42000")  # columns beside aggregates without GROUP BY
NO_SUCH_TABLE = Code(1146, "42S02")  # unknown table
NET_PACKET_TOO_LARGE = Code(1153, "08S01")  # a packet or text is too large
NET_PACKETS_OUT_OF_ORDER = Code(1156, "08S01")  # packets out of order
UNKNOWN_SYSTEM_VARIABLE = Code(1193, "HY000")  # unknown variable
CRASHED_ON_USAGE = Code(1194, "HY000")  # a file of the table is damaged
TRANS_CACHE_FULL = Code(1197, "HY000")  # a transaction has too many changes
TOO_MANY_USER_CONNECTIONS = Code(1203, "42000")  # a user has too many at a time
LOCK_WAIT_TIMEOUT = Code(1205, "HY000")  # a wait took too long
WRONG_ARGUMENTS = Code(1210, "HY000")  # wrong arguments
LOCK_DEADLOCK = Code(1213, "40001")  # transactions wait for each other, or one is lost
WRONG_NUMBER_OF_COLUMNS_IN_SELECT = Code(1222, "21000")  # the parts of a set operation differ
GLOBAL_VARIABLE = Code(1229, "HY000")  # a variable that only SET GLOBAL sets
WRONG_VALUE_FOR_VAR = Code(1231, "42000")  # a value that the variable cannot have
WRONG_TYPE_FOR_VAR = Code(1232, "42000")  # a type that the variable cannot have
NOT_SUPPORTED_YET = Code(1235, "42000")  # not supported
BINLOG_PURGED = Code(1236, "HY000")  # changes that a feed no longer stores
INCORRECT_GLOBAL_LOCAL_VAR = Code(1238, "HY000")  # a read-only variable
OPERAND_COLUMNS = Code(1241, "21000")  # a wrong number of columns in an operand
UNKNOWN_STMT_HANDLER = Code(1243, "HY000")  # unknown prepared statement
DERIVED_MUST_HAVE_ALIAS = Code(1248, "42000")  # a derived table needs an alias
NOT_SUPPORTED_AUTH_MODE = Code(1251, "08004")  # the client's way to log in is not supported
COLLATION_CHARSET_MISMATCH = Code(1253, "42000")  # a collation of another character set
WARN_DATA_OUT_OF_RANGE = Code(1264, "22003")  # a value is out of the column's range
WARN_DATA_TRUNCATED = Code(1265, "01000")  # a value was cut
UNKNOWN_COLLATION = Code(1273, "HY000")  # unknown collation
NON_UPDATABLE_TABLE = Code(1288, "HY000")  # a view cannot be written
OPTION_PREVENTS_STATEMENT = Code(1290, "HY000")  # an option of the server forbids it
DUPLICATED_VALUE_IN_TYPE = Code(1291, "HY000")  # a value occurs twice in ENUM or SET
TRUNCATED_WRONG_VALUE = Code(1292, "22007")  # a text is no value of the type
INVALID_ON_UPDATE = Code(1294, "HY000")  # ON UPDATE of a column that cannot have it
UNKNOWN_TIME_ZONE = Code(1298, "HY000")  # unknown time zone
INVALID_CHARACTER_STRING = Code(1300, "HY000")  # bytes that are no text
SP_DOES_NOT_EXIST = Code(1305, "42000")  # unknown function
QUERY_INTERRUPTED = Code(1317, "70100")  # the statement was interrupted
WRONG_OBJECT = Code(1347, "HY000")  # an object of another kind
VIEW_WRONG_LIST = Code(1353, "HY000")  # names and columns of a view differ in number
VIEW_INVALID = Code(1356, "HY000")  # a view that is only its text
NO_DEFAULT_FOR_FIELD = Code(1364, "HY000")  # a column without default got no value
DIVISION_BY_ZERO = Code(1365, "22012")  # division by zero
TRUNCATED_WRONG_VALUE_FOR_FIELD = Code(1366, "HY000")  # a value that the column cannot store
ILLEGAL_VALUE_FOR_TYPE = Code(1367, "22007")  # a literal that its type cannot have
PS_MANY_PARAM = Code(1390, "HY000")  # too many parameters
DATA_TOO_LONG = Code(1406, "22001")  # a value is too long for the column
TABLE_DEF_CHANGED = Code(1412, "HY000")  # the definition changed meanwhile
TOO_BIG_PRECISION = Code(1426, "42000")  # too many digits
M_BIGGER_THAN_D = Code(1427, "42000")  # more digits behind the point than in all
STACK_OVERRUN_NEED_MORE = Code(1436, "HY000")  # a statement is nested too deeply
MAX_PREPARED_STMT_COUNT_REACHED = Code(1461, "42000")  # too many prepared statements
VIEW_RECURSIVE = Code(1462, "HY000")  # a view would read itself
AUTOINC_READ_FAILED = Code(1467, "HY000")  # no AUTO_INCREMENT number is left
WRONG_VALUE = Code(1525, "HY000")  # a value of a wrong form
DROP_INDEX_FK = Code(1553, "HY000")  # an index that is needed
CANT_CHANGE_TX_CHARACTERISTICS = Code(1568, "25001")  # SET TRANSACTION within a transaction
WRONG_PARAMCOUNT_TO_NATIVE_FCT = Code(1582, "42000")  # a wrong number of arguments
TOO_MANY_CONCURRENT_TRXS = Code(1637, "HY000")  # too many at a time
DATA_OUT_OF_RANGE = Code(1690, "22003")  # a result is out of range
CANT_EXECUTE_IN_READ_ONLY_TRANSACTION = Code(1792, "25006")  # a write in a READ ONLY transaction
MALFORMED_PACKET = Code(1835, "HY000")  # a malformed packet
READ_ONLY_MODE = Code(1836, "HY000")  # a run of a follower that is not the last one
QUERY_TIMEOUT = Code(3024, "HY000")  # a statement took too long or too much
FIELD_IN_ORDER_NOT_SELECT = Code(3065, "HY000")  # ORDER BY what DISTINCT does not select
INVALID_JSON_TEXT = Code(3140, "22032")  # text that is no JSON
USER_LOCK_WRONG_NAME = Code(3057, "42000")  # no name for a lock of GET_LOCK
USER_LOCK_DEADLOCK = Code(3058, "HY000")  # sessions wait for each other's locks of GET_LOCK
INVALID_JSON_PATH = Code(3143, "42000")  # no path of JSON
INVALID_JSON_PATH_WILDCARD = Code(3149, "42000")  # a wildcard where a path has none
INVALID_JSON_PATH_ARRAY_CELL = Code(3153, "42000")  # a path that ends in no cell
INVALID_JSON_ONE_OR_ALL = Code(3154, "42000")  # neither 'one' nor 'all'
JSON_DOCUMENT_NULL_KEY = Code(3158, "22032")  # NULL as a key of JSON
SECURE_TRANSPORT_REQUIRED = Code(3159, "HY000")  # TLS is required
LOCK_NOWAIT = Code(3572, "HY000")  # a lock is held by another transaction
WINDOW_NO_SUCH_WINDOW = Code(3579, "HY000")  # unknown window
WINDOW_INVALID_WINDOW_FUNC_USE = Code(3593, "HY000")  # a window function in a wrong place
WINDOW_INVALID_WINDOW_FUNC_ALIAS_USE = Code(3594, "HY000")  # an alias of a window function in a wrong place
REGEXP_ILLEGAL_ARGUMENT = Code(3685, "HY000")  # a wrong regular expression
DEPENDENT_BY_OTHERS = Code(3730, "HY000")  # others need it
CLIENT_INTERACTION_TIMEOUT = Code(4031, "HY000")  # a client was silent for too long
USER_LOCK_OVERLONG_NAME = Code(4163, "42000")  # too long a name for a lock of GET_LOCK
