"""Where things lie in a state's arena: one int64 array, so that a kernel takes one argument.

    header | index descriptors | rows | identity hash | for each index: entries, entry hash, row links

* row: weight, then WIDTH words, the first IDW of which identify it; a free row has weight 0 and its first
  word is the next free row
* entry: head row, flag (1 present, 0 missing but with rows, -1 free), stamp (tick of the last read), key words
* link: next and previous row of the same key, -1 at the ends
Hash tables hold row or entry numbers, -1 for empty; linear probing, removal shifts back, load at most half.
"""

CAP, WIDTH, IDW, LIVE, FREE, HIGH, HCAP, ROWS, HASH, NIDX, FULL = range(11)
HEADER = 16

MAX_KEY = 8  # columns of an index
K, ECAP, ELIVE, EFREE, EHIGH, EHCAP, EOFF, EHOFF, LOFF, PRESENT = range(10)
COLS = 10
FOLDS = COLS + MAX_KEY
DESCRIPTOR = FOLDS + MAX_KEY

HEAD, FLAG, STAMP, KEY = range(4)
ENTRY = KEY  # words of an entry before its key
