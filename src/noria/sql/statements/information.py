"""Plans SELECTs from information_schema and mysql.user, by which migration tools list tables and columns.

    SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()

Such a query is planned like any query that is not maintained; `server/sessions/inspect/information.py` makes the rows
of its tables when it runs.  Keeps true: such a query reads only these tables, and DATABASE() is the session's
database.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_TABLE
from noria.core.types import BIGINT, TEXT, Column, TableDef
from noria.plan.view import ViewDef
from noria.sql.commands import Information
from noria.sql.query.plan_select import batch_of, block_of
from noria.sql.query.relations.context import Context
from noria.sql.text.databases import NOWHERE, Names
from noria.sql.text.refusals import refuse

SCHEMA = "information_schema"
_NUMBERS = frozenset("""table_rows avg_row_length data_length max_data_length index_length
    data_free checksum auto_increment character_maximum_length
    character_octet_length numeric_precision numeric_scale datetime_precision ordinal_position
    position_in_unique_constraint non_unique seq_in_index cardinality sub_part action_order originator maxlen id sortlen
    partition_ordinal_position subpartition_ordinal_position max_questions max_updates max_connections
    max_user_connections password_lifetime""".split())
_COLUMNS = {
    "schemata": "catalog_name schema_name default_character_set_name default_collation_name sql_path",
    "tables": "table_catalog table_schema table_name table_type engine version row_format table_rows avg_row_length "
              "data_length max_data_length index_length data_free auto_increment create_time update_time check_time "
              "table_collation checksum create_options table_comment",
    "columns": "table_catalog table_schema table_name column_name ordinal_position column_default is_nullable "
               "data_type character_maximum_length character_octet_length numeric_precision numeric_scale "
               "datetime_precision character_set_name collation_name column_type column_key extra privileges "
               "column_comment generation_expression",
    "statistics": "table_catalog table_schema table_name non_unique index_schema index_name seq_in_index column_name "
                  "collation cardinality sub_part packed nullable index_type comment index_comment is_visible "
                  "expression",
    "table_constraints": "constraint_catalog constraint_schema constraint_name table_schema table_name "
                         "constraint_type enforced",
    "key_column_usage": "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name "
                        "column_name ordinal_position position_in_unique_constraint referenced_table_schema "
                        "referenced_table_name referenced_column_name",
    "referential_constraints": "constraint_catalog constraint_schema constraint_name unique_constraint_catalog "
                               "unique_constraint_schema unique_constraint_name match_option update_rule delete_rule "
                               "table_name referenced_table_name",
    "check_constraints": "constraint_catalog constraint_schema constraint_name check_clause",
    "views": "table_catalog table_schema table_name view_definition check_option is_updatable definer security_type "
             "character_set_client collation_connection",
    "character_sets": "character_set_name default_collate_name description maxlen",
    "collations": "collation_name character_set_name id is_default is_compiled sortlen pad_attribute",
    "collation_character_set_applicability": "collation_name character_set_name",
    "user_privileges": "grantee table_catalog privilege_type is_grantable",
    "schema_privileges": "grantee table_catalog table_schema privilege_type is_grantable",
    "table_privileges": "grantee table_catalog table_schema table_name privilege_type is_grantable",
    "column_privileges": "grantee table_catalog table_schema table_name column_name privilege_type is_grantable",
    "plugins": "plugin_name plugin_version plugin_status plugin_type plugin_type_version plugin_library "
               "plugin_library_version plugin_author plugin_description plugin_license load_option",
    "partitions": "table_catalog table_schema table_name partition_name subpartition_name partition_ordinal_position "
                  "subpartition_ordinal_position partition_method subpartition_method partition_expression "
                  "subpartition_expression partition_description table_rows avg_row_length data_length "
                  "max_data_length index_length data_free create_time update_time check_time checksum "
                  "partition_comment nodegroup tablespace_name",
    "engines": "engine support comment transactions xa savepoints",
    "triggers": "trigger_catalog trigger_schema trigger_name event_manipulation event_object_catalog "
                "event_object_schema event_object_table action_order action_condition action_statement "
                "action_orientation action_timing action_reference_old_table action_reference_new_table "
                "action_reference_old_row action_reference_new_row created sql_mode definer character_set_client "
                "collation_connection database_collation",
    "routines": "specific_name routine_catalog routine_schema routine_name routine_type data_type "
                "character_maximum_length character_octet_length numeric_precision numeric_scale datetime_precision "
                "character_set_name collation_name dtd_identifier routine_body routine_definition external_name "
                "external_language parameter_style is_deterministic sql_data_access sql_path security_type created "
                "last_altered sql_mode routine_comment definer character_set_client collation_connection "
                "database_collation",
    "parameters": "specific_catalog specific_schema specific_name ordinal_position parameter_mode parameter_name "
                  "data_type character_maximum_length character_octet_length numeric_precision numeric_scale "
                  "datetime_precision character_set_name collation_name dtd_identifier routine_type",
    "events": "event_catalog event_schema event_name definer time_zone event_body event_definition event_type "
              "execute_at interval_value interval_field sql_mode starts ends status on_completion created "
              "last_altered last_executed event_comment originator character_set_client collation_connection "
              "database_collation",
}
PRIVILEGE_COLUMNS = tuple(f"{word}_priv" for word in """select insert update delete create drop reload shutdown process
    file grant references index alter show_db super create_tmp_table lock_tables execute repl_slave repl_client
    create_view show_view create_routine alter_routine create_user event trigger create_tablespace create_role
    drop_role""".split())
_COLUMNS["user"] = " ".join(("host user", *PRIVILEGE_COLUMNS, "ssl_type max_questions max_updates max_connections "
                             "max_user_connections plugin authentication_string password_expired "
                             "password_last_changed password_lifetime account_locked"))
_OF_MYSQL = ("user",)  # tables of the database `mysql`
RELATIONS = {
    name: TableDef(name, tuple(Column(c.upper(), BIGINT if c in _NUMBERS else TEXT) for c in columns.split()))
    for name, columns in _COLUMNS.items()}


class _Relations:
    """The `Catalog` of these queries."""

    def table(self, name: str) -> TableDef:
        found = RELATIONS.get(name.lower())  # `_is_ours` keeps those of `mysql` apart
        if found is None:
            there = ", ".join(sorted(set(RELATIONS) - set(_OF_MYSQL)))
            raise SqlError(*UNKNOWN_TABLE, f"Unknown table '{name}' in {SCHEMA}; there are {there}")
        return found

    def view(self, name: str) -> ViewDef | None:
        return None


def reads_information_schema(nodes: Sequence[exp.Expr]) -> bool:
    """Whether one of the nodes names a table of information_schema."""
    return any(isinstance(n, exp.Table) and _is_ours(n) for n in nodes)


def select(tree: exp.Expr, nodes: Sequence[exp.Expr], values: Sequence[object] | None, names: Names) -> Information:
    """Plan the query.  `values`: of its parameters, None while they are not bound.  Raises SqlError if it also reads
    other tables."""
    named = {n.alias.lower() for n in nodes if isinstance(n, exp.CTE)}
    for node in nodes:
        other = isinstance(node, exp.Table) and not _is_ours(node)
        if other and (node.args.get("db") or node.name.lower() not in named):
            raise refuse(f"a query of {SCHEMA} and of other tables", node, "ask for each by itself")
        if isinstance(node, exp.Column) and node.args.get("db") and not _is_ours(node):
            names.checked(node.args["db"].name)
    database = exp.Null() if names.namespace == NOWHERE else exp.Literal.string(names.current)
    here = tree.transform(lambda n: database.copy() if _is_current_database(n) else n)
    return Information(batch_of(here, Context(_Relations(), block_of, "batch", values,
                                             any_of_group=names.any_of_group), f"is of {SCHEMA}"))


def _is_ours(node: exp.Expr) -> bool:
    db = node.args.get("db")
    if db is None or node.args.get("catalog"):
        return False
    if isinstance(node, exp.Column):
        return db.name.lower() in (SCHEMA, "mysql")
    of_mysql = node.name.lower() in _OF_MYSQL
    return bool(db.name.lower() == ("mysql" if of_mysql else SCHEMA))


def _is_current_database(node: exp.Expr) -> bool:
    return isinstance(node, exp.CurrentSchema | exp.CurrentDatabase)
