"""One client's conversation as a state table: payloads in, packets out.  No socket, no clock, no logging.

    GREETED ──response──► PROVING ──proof──► READY ──COM_QUIT──► CLOSED      (GREETED ──SSLRequest──► GREETED, in TLS)
       │                     ▲                 │ COM_CHANGE_USER
       └── known at once ────┼──► READY        ▼
                             └────────────── PROVING

Keeps true: replies leave in the order of the commands, and each continues the numbers of its command's packets.  A
packet that has no meaning in the current state ends the conversation with an error.  A statement that fails leaves the
conversation as it was.

The session runs the statements (`server/outcomes.py`).  If it answers at once, the reply is encoded at once, and kept
if the result stands on a view's entry.  Otherwise `receive` returns `PendingReply`, and the caller must encode that
before it passes another packet.

A reply's bytes depend on the capability DEPRECATE_EOF, on text or binary rows and on the session's status.  So all
three are part of a kept reply's key: `(text, form)` or `(statement, parameters, form)`.  A text means something else in
another database than `noria`: its key has the session's namespace, too.  Kept packets are numbered from 1.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import TypeVar, cast

from noria.core import limits
from noria.core.errors import SqlError, codes
from noria.core.types import Field
from noria.server.logins import Attempt, LoginGuard
from noria.server.mysql import auth, codec, long_input, parameters, rows
from noria.server.mysql.chunks import Renumbered, chunks_of, is_large, ok_packet
from noria.server.mysql.codec import MORE_RESULTS, Capability, HandshakeResponse, Packet
from noria.server.mysql.long_input import LocalFile
from noria.server.mysql.parameters import PreparedStatement
from noria.server.mysql.states import ConversationState as ConversationState
from noria.server.mysql.states import PendingReply as PendingReply
from noria.server.mysql.states import Reply as Reply
from noria.server.mysql.states import TlsState as TlsState
from noria.server.mysql.streaming import EncodedStream
from noria.server.outcomes import (
    AUTOCOMMIT,
    NEVER,
    Answer,
    Backend,
    Client,
    Encoded,
    FailedStatement,
    Ok,
    Outcome,
    PendingOutcome,
    PendingRead,
    PreparedHandle,
    ResultSet,
    RowEncoding,
    Session,
    Stream,
    Streamed,
)
from noria.server.sessions.variables import SERVER_VERSION

T = TypeVar("T")
_ASKS = re.compile(rb"found_rows|execute", re.IGNORECASE)  # a text that may ask how many rows the last SELECT had
_SEARCHED_BYTES = 4096  # of a text; to count the rows of a reply is quicker than to search a longer one
_EXECUTE_FIXED = 10  # command, statement id, cursor flags, iteration count


class Conversation:
    """One client's conversation (see the module).  Others may read `state`."""

    def __init__(self, backend: Backend, directory: auth.Directory, connection_id: int, address: str,
                 nonce: bytes, guard: LoginGuard, tls_state: TlsState = TlsState.NONE) -> None:
        self.state, self.tls_state, self._guard = ConversationState.GREETED, tls_state, guard
        self.judged = False  # the client was let in or refused
        self.connection_id, self.address, self.user = connection_id, address, ""
        self._backend, self._directory, self._nonce = backend, directory, nonce
        self._replies = backend.replies
        self._session: Session | None = None
        self._form = self._binary_form = RowEncoding(False, False)
        self._capabilities = Capability(0)
        self._deprecate_eof = self._multi = False
        self._exchange: auth.AuthExchange | None = None
        self._response: HandshakeResponse | None = None
        self._expected = 1  # the next packet's number while connecting
        self._seq = 1  # the number of the first packet of the reply
        self._statements: dict[bytes, PreparedStatement] = {}  # by the four bytes of the id in a packet
        self._ids = itertools.count(1)
        self._long_bytes = 0  # of all statements' long_data
        self._file: LocalFile | None = None  # that the client sends
        self._kept_reply: bytes | None = None  # the last one with rows, if it was a kept reply

    @property
    def ready(self) -> bool:
        return self.state is ConversationState.READY

    @property
    def closed(self) -> bool:
        return self.state is ConversationState.CLOSED

    # --- Packets ---------------------------------------------------------------------------------------------

    def greeting(self) -> bytes:
        return codec.frame(codec.greeting(SERVER_VERSION, self.connection_id, self._nonce, auth.NATIVE,
                                          AUTOCOMMIT, self.tls_state is not TlsState.NONE), 0)

    def receive(self, packet: Packet) -> Reply:
        """Return the reply to one payload.  An error becomes its reply."""
        try:
            if self._file is not None:
                return self._file_part(self._file, packet)
            if packet.first != (0 if self.state is ConversationState.READY else self._expected):
                raise codec.out_of_order()
            self._seq = packet.following
            if packet.oversized:
                raise codec.too_large()
            if self.state is ConversationState.READY:
                return self._dispatch(packet.payload)
            return self._connect(packet.payload)
        except SqlError as failure:
            return self.refuse(failure)

    def command(self, payload: bytes) -> Reply:
        """As `receive`, for nearly all commands: one packet, numbered 0, in state READY."""
        self._seq = 1
        try:
            return self._dispatch(payload)
        except SqlError as failure:
            return self.refuse(failure)

    def refuse(self, failure: SqlError) -> bytes:
        """Return the error as a reply.  A client that broke the protocol or is not logged in yet is disconnected."""
        if isinstance(failure, codec.ProtocolError) or self.state is not ConversationState.READY:
            self.judged = self.judged or not isinstance(failure, codec.ProtocolError)
            self.state = ConversationState.CLOSED
        return codec.frame(codec.error(failure), self._seq)

    def close(self) -> None:
        """End the conversation and its session, because the client is gone."""
        self.state = ConversationState.CLOSED
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # --- Connecting ------------------------------------------------------------------------------------------

    def _connect(self, payload: bytes) -> Reply:
        if self.state is ConversationState.GREETED:
            if self.tls_state is not TlsState.TLS and self._goes_secret(payload):
                return b""
            response = codec.decode_handshake(payload)
            self._capabilities = response.capabilities
            self._deprecate_eof = Capability.DEPRECATE_EOF in response.capabilities
            return self._begin(response)
        if self._exchange is None:
            raise codec.out_of_order()
        return self._in_turn(partial(self._exchange.step, payload))

    def _goes_secret(self, payload: bytes) -> bool:
        """True if the client requests TLS.  The connection then decrypts all that follows.  Raises SqlError 3159 if
        TLS is required and not requested."""
        requested = self.tls_state is not TlsState.NONE and codec.requests_tls(payload)
        if requested:
            if len(payload) != codec.SSL_REQUEST_BYTES:
                raise codec.malformed("a request for TLS has 32 bytes, and the login comes after it")
            self.tls_state, self._expected = TlsState.TLS, self._seq & 255
        elif self.tls_state is TlsState.REQUIRED:
            raise SqlError(*codes.SECURE_TRANSPORT_REQUIRED,
                           "Connections using insecure transport are prohibited while --require_secure_transport=ON "
                           "(the server was started with --tls-require)")
        return requested

    def _begin(self, response: HandshakeResponse) -> Reply:
        self.state, self._response = ConversationState.PROVING, response

        def begun() -> list[bytes]:
            self._exchange, payloads = auth.AuthExchange.begin(self._directory, self._nonce, response,
                                                               self.tls_state is TlsState.TLS, self.address)
            return payloads

        return self._in_turn(begun)

    def _in_turn(self, step: Callable[[], list[bytes]]) -> Reply:
        """Run a step of the exchange.  Earlier wrong passwords may delay it (`LoginGuard`)."""
        assert self._response is not None
        attempt = self._guard.attempt(self.address, self._response.user)
        if not attempt.wait_s:
            return self._proceed(step(), attempt)
        return PendingReply(self._guard.sleep(attempt.wait_s), lambda done: self._proceed(step(), attempt), self.refuse)

    def _proceed(self, payloads: list[bytes], attempt: Attempt) -> bytes:
        exchange, response = self._exchange, self._response
        assert exchange is not None and response is not None
        sent = codec.frame_all(payloads, self._seq)
        self._seq += len(payloads)
        self._expected = self._seq & 255
        if exchange.granted is False:
            attempt.failed("MySQL", exchange.used_password)
            raise SqlError(*codes.ACCESS_DENIED, f"Access denied for user '{exchange.user}'@'{self.address}' "
                                           f"(using password: {'YES' if exchange.used_password else 'NO'})")
        attempt.passed()
        if exchange.granted is None:
            return sent
        try:
            self._check_account(exchange.account)
            self._session = self._backend.connect(Client(
                response.user, response.database, self.connection_id, self.address,
                Capability.FOUND_ROWS in self._capabilities, True, response.attributes, exchange.account.name))
        except SqlError as failure:
            return sent + self.refuse(failure)  # what was sent has the numbers before the error's
        self.user, self._exchange, self._response = response.user, None, None
        self._form, self._binary_form = (RowEncoding(b, self._deprecate_eof) for b in (False, True))
        self._multi = Capability.MULTI_STATEMENTS in self._capabilities
        self.state, self.judged = ConversationState.READY, True
        return sent + self._ok()

    def _check_account(self, account: auth.Account) -> None:
        """Refuse a locked account, and an expired password if the client does not know that it can change it."""
        assert self._response is not None
        if account.locked:
            raise SqlError(*codes.ACCOUNT_HAS_BEEN_LOCKED, f"Access denied for user '{self._response.user}'@"
                                                     f"'{self.address}'. Account is locked.")
        if account.expires_at <= self._directory.clock() and Capability.EXPIRED_PASSWORDS not in self._capabilities:
            raise SqlError(*codes.MUST_CHANGE_PASSWORD_LOGIN, "Your password has expired. To log in you must change it "
                                                        "using a client that supports expired passwords.")

    # --- Commands --------------------------------------------------------------------------------------------

    def _dispatch(self, payload: bytes) -> Reply:
        handler = _COMMANDS.get(payload[0]) if payload else None
        if handler is None:
            raise SqlError(*codes.UNKNOWN_COM, "Unknown command" + (f" {payload[0]:#04x}" if payload else ""))
        return handler(self, cast(Session, self._session), payload)

    def _quit(self, session: Session, payload: bytes) -> bytes:
        self.state = ConversationState.CLOSED
        return b""

    def _ping(self, session: Session, payload: bytes) -> bytes:
        return self._ok()

    def _init_db(self, session: Session, payload: bytes) -> Reply:
        return self._then(session.use(codec.text(payload[1:])), lambda done: self._ok())

    def _query(self, session: Session, payload: bytes) -> Reply:
        sql = payload[1:]
        if sql[:1] in b"lL" and (name := long_input.named_in(sql)) is not None:
            return self._ask_for_file(sql, name)
        key: Hashable = sql, session.status << 1 | self._deprecate_eof
        key = (session.namespace, key) if session.namespace else key
        kept = self._kept(session, key)
        if kept is None and self._kept_reply is not None and (len(sql) > _SEARCHED_BYTES or _ASKS.search(sql)):
            session.found_rows = codec.count_rows(self._kept_reply, self._deprecate_eof)
        if kept is None and len(sql) > limits.OFF_LOOP_CHARACTERS and codec.has_bytes(sql):
            return self._when(long_input.run(session, sql, self._multi, self._form), None, binary=False)
        return kept or self._when(session.query(codec.statement(sql), self._multi, self._form), key, binary=False)

    def _ask_for_file(self, sql: bytes, name: bytes) -> bytes:
        if Capability.LOCAL_FILES not in self._capabilities:
            raise long_input.disabled()
        self.state, self._file = ConversationState.LOADING, LocalFile(sql)
        return codec.frame(bytes((long_input.REQUEST,)) + name, self._seq)

    def _file_part(self, file: LocalFile, packet: Packet) -> Reply:
        """Take a part of the client's file.  An empty one ends it, and the statement runs."""
        self._seq = packet.following
        if packet.payload or packet.oversized:
            file.add(packet.payload, packet.oversized)
            return b""
        self.state, self._file = ConversationState.READY, None
        session = cast(Session, self._session)
        return self._when(session.load(codec.statement(file.sql), file.content()), None, binary=False)

    def _kept(self, session: Session, key: Hashable) -> bytes | None:
        """Return the kept reply to the same request, if it is still valid."""
        reply = (self._replies.get(key, session.unseen) if session.keepable else
                 self._replies.get(key, session.unseen, session.as_of, session.read_views))
        if reply is not None:
            session.warnings, self._kept_reply = (), reply
            if self._seq != 1:
                return codec.renumber(reply, self._seq)
        return reply

    def _field_list(self, session: Session, payload: bytes) -> Reply:
        reader = codec.PayloadReader(payload, 1)
        table, pattern = codec.text(reader.until_nul()), codec.text(reader.rest())
        null_default = b"\xfb"

        def encode(fields: Sequence[Field]) -> bytes:
            payloads = [rows.column_definition(f, table) + null_default for f in fields]
            return codec.frame_all([*payloads, self._end()], self._seq)

        return self._then(session.list_fields(table, pattern), encode)

    def _statistics(self, session: Session, payload: bytes) -> bytes:
        return codec.frame(b"Noria", self._seq)

    def _process_kill(self, session: Session, payload: bytes) -> Reply:
        return self._then(session.kill(codec.PayloadReader(payload, 1).integer(4)), lambda done: self._ok())

    def _process_info(self, session: Session, payload: bytes) -> Reply:
        return self._query(session, b"\x03SHOW PROCESSLIST")

    def _set_option(self, session: Session, payload: bytes) -> bytes:
        option = codec.PayloadReader(payload, 1).integer(2)
        if option > 1:
            raise SqlError(*codes.UNKNOWN_COM, f"Unknown command: there is no option {option}")
        self._multi = option == 0
        return codec.frame(self._end(), self._seq)

    def _change_user(self, session: Session, payload: bytes) -> Reply:
        response = codec.decode_change_user(payload, self._capabilities)
        self._drop_statements(session)
        self._session = None
        session.close()
        return self._begin(response)

    def _reset_connection(self, session: Session, payload: bytes) -> bytes:
        self._drop_statements(session)
        session.reset()
        return self._ok()

    def _drop_statements(self, session: Session) -> None:
        for statement in self._statements.values():
            session.close_statement(statement.prepared.handle)
        self._statements.clear()
        self._long_bytes, self._kept_reply = 0, None

    # --- Prepared statements ---------------------------------------------------------------------------------

    def _prepare(self, session: Session, payload: bytes) -> Reply:
        if len(self._statements) >= limits.MYSQL_STATEMENTS:
            raise SqlError(*codes.MAX_PREPARED_STMT_COUNT_REACHED,
                           "Can't create more than max_prepared_stmt_count statements "
                           f"(current value: {limits.MYSQL_STATEMENTS}); close some")
        asks = _ASKS.search(payload) is not None
        return self._then(session.prepare(codec.text(payload[1:])), partial(self._prepared, session, asks))

    def _prepared(self, session: Session, asks: bool, prepared: PreparedHandle) -> bytes:
        if prepared.parameters > parameters.MOST:
            session.close_statement(prepared.handle)
            raise parameters.too_many(prepared.parameters)
        number = next(self._ids) & 0xFFFFFFFF
        self._statements[number.to_bytes(4, "little")] = PreparedStatement(prepared, prepared.parameters, asks)
        end = [] if self._deprecate_eof else [self._end()]
        return codec.frame_all(parameters.described(number, prepared, end), self._seq)

    def _execute(self, session: Session, payload: bytes) -> Reply:
        statement = self._statements.get(payload[1:5])
        if statement is None or len(payload) < _EXECUTE_FIXED:
            raise parameters.unknown_statement(payload, "mysqld_stmt_execute")
        handle, count = statement.prepared.handle, statement.count
        if statement.asks and self._kept_reply is not None:
            session.found_rows = codec.count_rows(self._kept_reply, self._deprecate_eof)
        encoded = b""
        if count:
            encoded, statement.types = parameters.canonical(payload[_EXECUTE_FIXED:], count, statement.types)
        if statement.long_data or statement.failure is not None:
            failure, long_data = self._take_long_data(statement)
            if failure is not None:
                raise failure
            answer = session.execute(handle, parameters.decode(encoded, count, long_data), self._binary_form)
            return self._when(answer, None, binary=True)
        key: Hashable = None
        if statement.prepared.number is not None:
            key = statement.prepared.number, encoded, session.status << 1 | self._deprecate_eof
            key = (session.scope, key) if session.scope else key
            kept = self._kept(session, key)
            if kept is not None:
                return kept
        values = parameters.decode(encoded, count, {}) if count else []
        return self._when(session.execute(handle, values, self._binary_form), key, binary=True)

    def _send_long_data(self, session: Session, payload: bytes) -> bytes:
        """Store a part of a value.  This command has no reply; the next execution reports an error."""
        statement = self._statements.get(payload[1:5])
        if statement is None:
            return b""
        reader = codec.PayloadReader(payload, 5)
        number = reader.integer(2)
        if number >= statement.count:
            statement.failure = SqlError(*codes.WRONG_ARGUMENTS, "Incorrect arguments to mysqld_stmt_send_long_data: "
                                                           f"there is no parameter {number}")
        elif self._long_bytes + reader.left > limits.MAX_PACKET_BYTES:
            self._take_long_data(statement)
            statement.failure = codec.too_large()
        else:
            self._long_bytes += reader.left
            statement.long_data.setdefault(number, bytearray()).extend(reader.rest())
        return b""

    def _take_long_data(self, statement: PreparedStatement) -> tuple[SqlError | None, dict[int, bytearray]]:
        taken = statement.failure, statement.long_data
        self._long_bytes -= sum(map(len, statement.long_data.values()))
        statement.failure, statement.long_data = None, {}
        return taken

    def _reset_statement(self, session: Session, payload: bytes) -> bytes:
        statement = self._statements.get(payload[1:5])
        if statement is None:
            raise parameters.unknown_statement(payload, "mysqld_stmt_reset")
        self._take_long_data(statement)
        return self._ok()

    def _close_statement(self, session: Session, payload: bytes) -> bytes:
        statement = self._statements.pop(payload[1:5], None)
        if statement is not None:
            self._take_long_data(statement)
            session.close_statement(statement.prepared.handle)
        return b""

    # --- Replies ---------------------------------------------------------------------------------------------

    def _then(self, answer: T | PendingOutcome[T], encode: Callable[[T], bytes]) -> Reply:
        """Return the reply encoded from the session's answer, now or later."""
        return encode(answer) if not isinstance(answer, PendingOutcome) else PendingReply(
            answer.future, lambda done: encode(answer.then(done)), self.refuse)

    def _when(self, answer: Answer | Awaitable[Answer] | PendingOutcome[Answer], key: Hashable, binary: bool) -> Reply:
        """Return the reply to a statement, now or later.  key: an immediate reply may be kept under it."""
        if isinstance(answer, ResultSet):
            reply = self._encode(answer, binary)
            if answer.version is not None and key is not None and self._seq == 1 and isinstance(reply, bytes):
                self._replies.put(key, reply, *answer.version)
            return reply
        if isinstance(answer, PendingOutcome):
            return PendingReply(answer.future, lambda done: self._encode(answer.then(done), binary), self.refuse)
        if isinstance(answer, PendingRead):
            return PendingReply(answer.future, lambda done: self._when(answer.then(done), None, binary), self.refuse)
        if inspect.isawaitable(answer):
            return PendingReply(answer, lambda done: self._encode(done.result(), binary), self.refuse)
        return self._encode(answer, binary)

    def _ok(self, outcome: Ok | None = None, more: int = 0) -> bytes:
        ok = outcome or _OK
        return ok_packet(ok.affected, ok.last_insert_id, self._status() | more, len(ok.warnings), ok.info,
                          self._seq)

    def _end(self) -> bytes:
        return codec.end_of_rows(self._status(), 0, self._deprecate_eof)

    def _status(self) -> int:
        return AUTOCOMMIT if self._session is None else self._session.status

    def _encode(self, answer: Outcome | Sequence[Outcome], binary: bool) -> bytes | Stream:
        if type(answer) is not Ok:
            self._kept_reply = None
        if type(answer) is ResultSet and not is_large(answer):
            return self._encode_one(answer, binary, 0)
        outcomes = (answer,) if isinstance(answer, Outcome) else answer
        if isinstance(outcomes[0], Streamed):
            return outcomes[0].stream if self._seq == 1 else Renumbered(outcomes[0].stream, self._seq)
        if any(map(is_large, outcomes)):
            sending = NEVER if self._session is None else self._session.sending()
            return EncodedStream(chunks_of(outcomes, binary, self._deprecate_eof, self._status(), self._seq, sending))
        replies = []
        for i, outcome in enumerate(outcomes):
            more = MORE_RESULTS if i + 1 < len(outcomes) else 0
            reply = self._encode_one(outcome, binary, more)
            self._seq += codec.count_packets(reply) if more else 0
            replies.append(reply)
        return b"".join(replies)

    def _encode_one(self, outcome: Outcome, binary: bool, more: int) -> bytes:
        if isinstance(outcome, ResultSet):
            return rows.encode_result(outcome.fields, outcome.rows, binary, self._deprecate_eof,
                                      self._status() | more, len(outcome.warnings), self._seq)
        if isinstance(outcome, Encoded):
            packets = outcome.packets if self._seq == 1 else codec.renumber(outcome.packets, self._seq)
            return codec.with_more_results(packets, self._deprecate_eof) if more else packets
        if isinstance(outcome, FailedStatement):
            return self.refuse(outcome.error)
        assert isinstance(outcome, Ok), "a stream is a whole answer"
        return self._ok(outcome, more)


_OK = Ok()


_COMMANDS: dict[int, Callable[[Conversation, Session, bytes], Reply]] = {
    0x01: Conversation._quit,
    0x02: Conversation._init_db,
    0x03: Conversation._query,
    0x04: Conversation._field_list,
    0x09: Conversation._statistics,
    0x0A: Conversation._process_info,
    0x0C: Conversation._process_kill,
    0x0E: Conversation._ping,
    0x11: Conversation._change_user,
    0x16: Conversation._prepare,
    0x17: Conversation._execute,
    0x18: Conversation._send_long_data,
    0x19: Conversation._close_statement,
    0x1A: Conversation._reset_statement,
    0x1B: Conversation._set_option,
    0x1F: Conversation._reset_connection,
}
