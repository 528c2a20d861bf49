"""Where things lie in a state's arena: one int64 array, so that a kernel takes one argument.

    header | index descriptors | rows | identity hash | for each index: entries, entry hash, row links

* row: weight, then WIDTH words, the first IDW of which identify it; a free row has weight 0 and its first
  word is the next free row
* entry: head row, flag (1 present, 0 missing but with rows, -1 free), stamp (tick of the last read), key words
* link: next and previous row of the same key, -1 at the ends
Hash tables hold row or entry numbers, -1 for empty; linear probing, removal shifts back, load about half.

A large arena is a reserve of addresses, of which what was never touched takes no memory: rows, entries and links have
room behind them, and a hash table of n slots is followed by one of 2n that it moves to, some slots with each change
(`growth`).  Until that is done, keys whose first slot is one of MOVED from START on (around the end) are in the larger
table, the others in the smaller one.  CLEARED slots of the larger one are ready; 0 while nothing grows.
"""

CAP, WIDTH, IDW, LIVE, FREE, HIGH, ROWS, NIDX, FULL = range(9)
HASH, HCAP = 9, 10
HEADER = 16

# Words of a hash table's description, from HASH of the header and from EHOFF of an index's descriptor on.
BASE, SLOTS, START, MOVED, CLEARED = range(5)

MAX_KEY = 8  # columns of an index
K, ECAP, ELIVE, EFREE, EHIGH, EOFF, LOFF, PRESENT, EHOFF, EHCAP = range(10)
COLS = EHOFF + CLEARED + 1
FOLDS = COLS + MAX_KEY
DESCRIPTOR = FOLDS + MAX_KEY

HEAD, FLAG, STAMP, KEY = range(4)
ENTRY = KEY  # words of an entry before its key
