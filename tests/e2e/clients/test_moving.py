"""docs/how-to/move-an-application.md, followed: its commands move a shop from MariaDB, compare it and move it back."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.mariadb import INSTALLED, MariaDb
from e2e.serving import Served, execute, rows

pytestmark = [
    pytest.mark.spark, pytest.mark.mariadb, pytest.mark.timeout(600),
    pytest.mark.skipif(not INSTALLED or shutil.which("mariadb-dump") is None or shutil.which("mariadb") is None,
                       reason="Debian's MariaDB server and client are not installed")]

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "move-an-application.md"
SHOP = (
    "CREATE TABLE customers (id INT PRIMARY KEY AUTO_INCREMENT, email VARCHAR(190) NOT NULL, name VARCHAR(60), "
    "since TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE KEY email (email))",
    "CREATE TABLE products (sku CHAR(8) PRIMARY KEY, title TEXT, price DECIMAL(9,2) NOT NULL CHECK (price >= 0), "
    "tags SET('new', 'sale'), picture BLOB, KEY price (price))",
    "CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, customer_id INT NOT NULL, state "
    "ENUM('open', 'paid') NOT NULL DEFAULT 'open', made DATETIME(3), note LONGTEXT, weight DOUBLE, "
    "FOREIGN KEY (customer_id) REFERENCES customers (id) ON DELETE CASCADE)",
    "CREATE TABLE items (order_id BIGINT UNSIGNED, sku CHAR(8), n INT NOT NULL, PRIMARY KEY (order_id, sku), "
    "FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE, FOREIGN KEY (sku) REFERENCES products (sku))",
    "CREATE VIEW totals AS SELECT customer_id, COUNT(*) AS orders FROM orders GROUP BY customer_id",
    "INSERT INTO customers (email, name, since) VALUES ('ann@x', 'Ann', '2024-01-02 03:04:05'), "
    "('bob@x', 'Böb ''B'' \\\\ 😀', '2024-01-03 03:04:05')",
    "INSERT INTO products VALUES ('A1', 'Tea\\n', 3.50, 'new,sale', 0x00FF27), ('B2', NULL, 0, '', NULL)",
    "INSERT INTO orders (customer_id, state, made, note, weight) VALUES "
    "(1, 'paid', '2024-02-29 12:00:00.125', '', 0.1), (2, 'open', NULL, NULL, 1e-10)",
    "INSERT INTO items VALUES (1, 'A1', 2), (1, 'B2', 1), (2, 'A1', 5)",
)


def commands() -> list[str]:
    return re.findall(r"^\$ (.*)$", PAGE.read_text(), re.MULTILINE)


def test_the_commands_move_a_shop_and_back(tmp_path: Path) -> None:
    mariadb, server = MariaDb(tmp_path), Served(tmp_path / "data")
    there, back = mariadb.connect("shop"), f"-u root -S {mariadb.socket}"
    try:
        for text in SHOP:
            execute(there, text)

        def run(command: str) -> str:
            at = command.replace("-h db.example -u app -p ", f"{back} ").replace("-P 3307", f"-P {server.mysql_port}")
            assert at != command
            return subprocess.run(at, shell=True, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

        dump, load, emptied, forced, rows_there, rows_here, compare, dump_back, translate = commands()
        run(dump)
        run(load)
        run(emptied)
        run(forced)
        assert (tmp_path / "refused.txt").read_text() == ""
        run(rows_there)
        run(rows_here)
        assert subprocess.run(compare.split(), cwd=tmp_path, capture_output=True, text=True, check=False).stdout == ""
        assert (tmp_path / "here.sql").read_bytes().count(b"INSERT INTO") == 9
        with server.connect() as here:
            execute(here, "USE shop")
            assert rows(here, "SELECT orders FROM totals WHERE customer_id = 1") == [(1,)]
            execute(here, "DELETE FROM customers WHERE id = 1")
            assert rows(here, "SELECT order_id, n FROM items") == [(2, 5)], "CASCADE came with the dump"
            execute(here, "INSERT INTO orders (customer_id) VALUES (2)")
        run(dump_back)
        subprocess.run(translate.split(), cwd=tmp_path, check=True)
        execute(there, "DROP DATABASE shop")
        subprocess.run(f"mariadb {back} < back.sql", shell=True, cwd=tmp_path, check=True, capture_output=True)
        again = mariadb.connect("shop")
        assert rows(again, "SELECT id, customer_id, state FROM orders ORDER BY id") == [(2, 2, "open"), (3, 2, "open")]
        assert rows(again, "SELECT orders FROM totals") == [(2,)]
    finally:
        server.stop()
        mariadb.close()
