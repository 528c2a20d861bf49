"""The two kinds of errors.

* `SqlError`: the user's statement or data is wrong, or a resource is exhausted.  It has MySQL's number and SQLSTATE,
  and says what is wrong, where, and what to do.  It never stops a worker.
* `InvariantViolation`: a defect of Noria.  It has the invariant's id and the story of the key, and stops the worker.
  No code catches it and continues.
"""

from __future__ import annotations

from noria.core.errors.codes import (
    AMBIGUOUS_FIELD,
    AUTOINC_READ_FAILED,
    BAD_FIELD,
    BAD_NULL,
    DATA_OUT_OF_RANGE,
    DATA_TOO_LONG,
    DIVISION_BY_ZERO,
    DUP_ENTRY,
    DUP_FIELDNAME,
    LOCK_WAIT_TIMEOUT,
    NO_DEFAULT_FOR_FIELD,
    NO_SUCH_TABLE,
    NON_DEFAULT_VALUE_FOR_GENERATED_COLUMN,
    NON_UPDATABLE_TABLE,
    NOT_SUPPORTED_YET,
    PARSE_ERROR,
    QUERY_INTERRUPTED,
    QUERY_TIMEOUT,
    TABLE_DEF_CHANGED,
    TABLE_EXISTS,
    TOO_LONG_IDENT,
    TOO_MANY_CONCURRENT_TRXS,
    TOO_MANY_FIELDS,
    TRUNCATED_WRONG_VALUE_FOR_FIELD,
    UNKNOWN_ERROR,
    VIEW_INVALID,
    WARN_DATA_OUT_OF_RANGE,
    WRONG_VALUE_COUNT_ON_ROW,
)


class SqlError(Exception):
    """An error for a client.  code: MySQL's number.  state: the SQLSTATE of five characters."""

    def __init__(self, code: int, state: str, message: str):
        super().__init__(message)
        self.code, self.state, self.message = code, state, message

    def __reduce__(self) -> tuple[type[SqlError], tuple[int, str, str]]:
        return SqlError, (self.code, self.state, self.message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlError) and (self.code, self.message) == (other.code, other.message)

    def __hash__(self) -> int:
        return hash((self.code, self.message))


class InvariantViolation(Exception):
    """A broken invariant of docs/design/invariants.md.  invariant: its id.  story: the last events, if a worker has
    added them (`dataflow/graph/story.py`)."""

    def __init__(self, invariant: str, detail: str, story: str = ""):
        super().__init__(invariant, detail, story)
        self.invariant, self.detail, self.story = invariant, detail, story

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}" + (f"\nstory:\n{self.story}" if self.story else "")


def parse_error(detail: str) -> SqlError:
    return SqlError(*PARSE_ERROR, f"You have an error in your SQL syntax: {detail}")


def unknown_table(name: str) -> SqlError:
    return SqlError(*NO_SUCH_TABLE, f"Table '{name}' doesn't exist")


def no_table(name: str, is_view: bool) -> SqlError:
    """The error for a write to a name that is no table.  is_view: a view has the name."""
    if is_view:
        return SqlError(*NON_UPDATABLE_TABLE,
                        f"The target table {name} is a view and cannot be written; write the tables it "
                        "reads")
    return unknown_table(name)


def name_too_long(name: str) -> SqlError:
    return SqlError(*TOO_LONG_IDENT, f"Identifier name '{name[:64]}…' is too long")


def too_many_columns(most: int) -> SqlError:
    return SqlError(*TOO_MANY_FIELDS, f"Too many columns; at most {most}")


class PlaceholderViewError(SqlError):
    """The error for a read of a placeholder view (`sql/statements/placeholder_views.py`).  text: its CREATE VIEW."""

    def __init__(self, name: str, text: str):
        super().__init__(*VIEW_INVALID, f"View '{name}' has no FROM, or reads a view that has none: it stands in for "
                                        "what is still to come. Read the columns of one without FROM by themselves; "
                                        "what reads it is there when it was dropped and made with a FROM")
        self.text = text


class Poisoned(SqlError):
    """The error for a request that is rejected because it ended a worker too often."""


def view_gone(name: str) -> SqlError:
    """The error for a read of a view that was dropped meanwhile.  The session plans the statement again
    (`is_redefined`)."""
    return SqlError(*NO_SUCH_TABLE, f"View '{name}' doesn't exist")


class NotCommitted(SqlError):
    """A COMMIT failed.  Whatever its code says, the transaction is over, and the statement must not be tried again."""


def is_redefined(error: SqlError) -> bool:
    """True if a view was dropped or redefined during a read, so that the statement must be planned again."""
    unknown = error.code == NO_SUCH_TABLE.number and error.message.startswith("View '")
    return unknown or (error.code == TABLE_DEF_CHANGED.number and not isinstance(error, NotCommitted))


def unfilled(name: str) -> SqlError:
    """The error for a read of a view that has no first state yet."""
    return SqlError(*LOCK_WAIT_TIMEOUT, f"View '{name}' is still being filled for the first time; try again")


def is_unfilled(error: SqlError) -> bool:
    return error.code == LOCK_WAIT_TIMEOUT.number and error.message.startswith("View '")


OUT_OF_SERVICE = "Out of service: "


def out_of_service(what: str, why: str, number: str = "") -> SqlError:
    """The error for a read of a view that is out of service.  number: the number of the log entry."""
    more = f"; the server's logs say more under {number}" if number else ""
    return SqlError(*UNKNOWN_ERROR,
                    f"{OUT_OF_SERVICE}'{what}' failed ({why}). It is built again in the background; try "
                    f"again later, or drop the view{more}")


def is_out_of_service(error: BaseException) -> bool:
    return (isinstance(error, SqlError) and error.code == UNKNOWN_ERROR.number
            and error.message.startswith(OUT_OF_SERVICE))


def table_exists(name: str) -> SqlError:
    return SqlError(*TABLE_EXISTS, f"Table '{name}' already exists")


def unknown_column(name: str, where: str) -> SqlError:
    return SqlError(*BAD_FIELD, f"Unknown column '{name}' in '{where}'")


def duplicate_column(name: str) -> SqlError:
    return SqlError(*DUP_FIELDNAME, f"Duplicate column name '{name}'")


def ambiguous_column(name: str, where: str) -> SqlError:
    return SqlError(*AMBIGUOUS_FIELD, f"Column '{name}' in {where} is ambiguous")


def duplicate_entry(entry: str, key: str) -> SqlError:
    return SqlError(*DUP_ENTRY, f"Duplicate entry '{entry}' for key '{key}'")


def null_not_allowed(column: str) -> SqlError:
    return SqlError(*BAD_NULL, f"Column '{column}' cannot be null")


def generated_value(column: str, table: str) -> SqlError:
    """The error of a statement that has a value for a generated column."""
    return SqlError(*NON_DEFAULT_VALUE_FOR_GENERATED_COLUMN,
                    f"The value specified for generated column '{column}' in table '{table}' is not allowed.")


def no_default(column: str) -> SqlError:
    return SqlError(*NO_DEFAULT_FOR_FIELD, f"Field '{column}' doesn't have a default value")


def wrong_value_count(row: int) -> SqlError:
    return SqlError(*WRONG_VALUE_COUNT_ON_ROW, f"Column count doesn't match value count at row {row}")


def out_of_range(column: str, row: int) -> SqlError:
    return SqlError(*WARN_DATA_OUT_OF_RANGE, f"Out of range value for column '{column}' at row {row}")


def data_too_long(column: str, row: int) -> SqlError:
    return SqlError(*DATA_TOO_LONG, f"Data too long for column '{column}' at row {row}")


def incorrect_value(kind: str, value: object, column: str, row: int) -> SqlError:
    return SqlError(*TRUNCATED_WRONG_VALUE_FOR_FIELD,
                    f"Incorrect {kind} value: '{value}' for column '{column}' at row {row}")


def auto_increment_exhausted(column: str) -> SqlError:
    """The error for an INSERT when AUTO_INCREMENT has no number left."""
    return SqlError(*AUTOINC_READ_FAILED,
                    "Failed to read auto-increment value from storage engine: the values of column "
                    f"'{column}' are used up")


def value_overflow(what: str) -> SqlError:
    return SqlError(*DATA_OUT_OF_RANGE, f"{what} value is out of range")


def division_by_zero() -> SqlError:
    """The error of strict mode in a write.  In a query, the division yields NULL."""
    return SqlError(*DIVISION_BY_ZERO, "Division by 0")


def too_many_jobs(what: str, waiting: int, instead: str) -> SqlError:
    """The error for a job when Spark's queue is full."""
    return SqlError(*TOO_MANY_CONCURRENT_TRXS,
                    f"Too many {what} for Spark: {waiting} wait already; try again later, or {instead}")


def definition_changed() -> SqlError:
    return SqlError(*TABLE_DEF_CHANGED, "Table definition has changed, please retry transaction")


def view_changed(name: str) -> SqlError:
    """The error for a read of an earlier definition.  The session binds the statement again if it has its text."""
    return SqlError(*TABLE_DEF_CHANGED, f"The definition of view '{name}' has changed, please run the statement "
                                           "again")


def not_supported(what: str, instead: str = "") -> SqlError:
    """The error for a missing feature.  instead: what to do."""
    return SqlError(*NOT_SUPPORTED_YET, f"Noria does not support {what} yet" + (f"; {instead}" if instead else ""))


def interrupted() -> SqlError:
    """The error for a statement that was killed or whose client has disconnected."""
    return SqlError(*QUERY_INTERRUPTED, "Query execution was interrupted")


def statement_timeout(limit_ms: int, down: str = "") -> SqlError:
    """The error for a statement that exceeded max_execution_time.  down: which workers were lost meanwhile, and why."""
    away = f"; meanwhile {down}" if down else ""
    return SqlError(*QUERY_TIMEOUT, "Query execution was interrupted, maximum statement execution time exceeded "
                                    f"({limit_ms} ms){away}; SET max_execution_time to another number of ms, "
                                    f"{'or try again' if down else 'or ask for less'}")


def too_much_at_once(rows: int, nbytes: int) -> SqlError:
    return SqlError(*QUERY_TIMEOUT, f"Query execution was interrupted: an intermediate result of {rows} rows is more "
                                    f"than the {nbytes >> 20} MB that one statement may take at once. Add conditions "
                                    "by which rows are looked up")


def read_limit_error(rows: int) -> SqlError:
    return SqlError(*QUERY_TIMEOUT, f"Query execution was interrupted: it would read more than {rows} rows at once")


def internal_error(number: str) -> SqlError:
    """The error for a request that met a defect of Noria.  number: the number of the log entry with the details."""
    return SqlError(*UNKNOWN_ERROR, f"Internal error {number}: the statement could not be answered, nothing else is "
                                    "affected; the server's logs say more under this number")


def adhoc_too_large(rows: int) -> SqlError:
    return not_supported(f"an ad-hoc view that must hold all of its rows over tables of {rows} rows",
                         "give the SELECT a `column = value`, or make it a view by CREATE VIEW")


def adhoc_too_much(what: str, nbytes: int) -> SqlError:
    return SqlError(*QUERY_TIMEOUT, f"Query execution was interrupted: '{what}' passes the {nbytes >> 20} MB that a "
                                    "state of an ad-hoc view may take; add conditions, or make it a view by CREATE "
                                    "VIEW")


def adhoc_too_long(hold_ms: int) -> SqlError:
    return not_supported(f"an ad-hoc view that takes the worker more than {hold_ms} ms, or more memory than one may,",
                         "give the SELECT a `column = value`, or make it a view by CREATE VIEW")


def result_gone() -> SqlError:
    """The error for the rest of a result whose worker has ended."""
    return SqlError(*UNKNOWN_ERROR, "the worker that held the rest of this result has ended: run the statement again")
