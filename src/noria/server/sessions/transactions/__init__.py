"""Transactions of one session:

    transaction_service  statements within a transaction, of all sessions
    selected_parts       the statements of a write whose rows a SELECT has found
    transaction          one session's transaction

Statements come in; staged writes and the rows of SELECTs go out.
"""
