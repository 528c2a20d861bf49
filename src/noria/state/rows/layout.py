"""The layout of a state's arena: one int64 array, so that a kernel needs one argument.

    header | index descriptors | rows | identity hash | for each index: entries, entry hash, row links

* row: its weight, then WIDTH words.  The first IDW words identify it.  A free row has weight 0, and its first word is
  the number of the next free row.
* entry: first row of the key, flag (1 present, 0 missing but with rows, -1 free), stamp (tick of the last read), key.
* link: next and previous row of the same key, -1 at the ends.
* hash table: numbers of rows or entries, -1 for an empty slot.  It uses linear probing, and a removal shifts later
  numbers back.  It is about half full.

A large arena is a reserve of addresses; untouched addresses take no memory.  So rows, entries and links can grow.  A
hash table of n slots is followed by one of 2n slots, to which each change moves a few keys (`growth`).  Meanwhile the
larger table has the keys whose first slot is among the MOVED slots from START on, around the end.  CLEARED counts the
slots of the larger table that are ready; it is 0 while the table does not grow.
"""

CAP, WIDTH, IDW, LIVE, FREE, HIGH, ROWS, NIDX, FULL = range(9)
HASH, HCAP = 9, 10
HEADER = 16

# The five words that describe a hash table.  They begin at HASH in the header and at EHOFF in an index's descriptor.
BASE, SLOTS, START, MOVED, CLEARED = range(5)

MAX_KEY = 8  # columns of an index
K, ECAP, ELIVE, EFREE, EHIGH, EOFF, LOFF, PRESENT, EHOFF, EHCAP = range(10)
COLS = EHOFF + CLEARED + 1
FOLDS = COLS + MAX_KEY
DESCRIPTOR = FOLDS + MAX_KEY

HEAD, FLAG, STAMP, KEY = range(4)
ENTRY = KEY  # words of an entry before its key
