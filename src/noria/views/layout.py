"""The layout of a view's memory: one int64 array, a file or a region of one, so that a kernel needs one argument.

    header | index: the slot words of an open-addressing hash table | slab of blocks, and larger indexes

* slot: EMPTY, TOMBSTONE (removed; probing continues past it), or hash bits and the word offset of the key's block
* block: version, row count and size class, the tick that published it, the folded key, then for each row its weight
  and its columns
* stamps, in another file: for each slot the tick of its last read, written by readers

Keeps true: one release store changes a slot, after its new block is complete.  When no slot refers to a block any
more, its version becomes NO_VERSION before any other word of it changes.  A version is never used twice: versions
start at epoch << 40 and grow.  So if slot and version are unchanged after a reader has copied a block, it has copied
one complete version.

A view with memory of its own grows by a larger index there, of twice the slots.  Its keys move to it in steps, as rows
arrive; INDEXED says which indexes are in use.  A key's word is in the larger index before a TOMBSTONE replaces it in
the smaller one.  So a reader that searches the smaller one first finds the key; if it finds none, it reads INDEXED
again.  Slots are numbered over all indexes that the memory ever had, so a number and its stamp always belong to one
place.  Numbers of an index that is no longer in use have no entry.

Regions are reused by other views.  The number in STATE is never used twice.  A reader knows the number from the
region's record, and compares it again after all its reads.  STATE is DEAD or MOVED before another word of the region
changes, and every version of the next view is greater than those of the last.  A region's number of slots never
changes.  So a late reader still finds slots at the same places, which refer only to blocks of that region.  No block
includes the last PAD words of a region.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit

# Words of the header.
(MAGIC, STATE, TICK, READY, INDEXED, WIDTH, KEYS, FULL, FIRST, SLAB, LIVE, USED, TOP, ROOM, FREE_WORDS,
 VERSION) = range(16)
# INDEXED: twice the log2 of the number of slots, plus 1 while keys move to the next index.  FIRST: slots of the first
# index.  LIVE: keys.  USED: slots of the newest index that are not EMPTY.
KEY_COLUMNS = 16  # positions of the key columns in a row
FOLDS = 32  # 1 for each key column that is CI text
FREE_LISTS = 48  # for each size class the first free block, linked through the word after the version
CLASSES = 160
INDEXES = FREE_LISTS + CLASSES  # for each power of two the offset of the index with so many slots
POWERS = 40
EPOCH, HELD, MOST_USED, PASSED = range(INDEXES + POWERS, INDEXES + POWERS + 4)
# HELD: distinct rows.  MOST_USED: the limit of USED, beyond which another index is needed.  PASSED: slots of the
# smaller index whose keys have moved to the larger one.
INDEX = 256  # the first index starts here
MAX_KEY = 16  # the most key columns of a view

FORMAT = 0x4E4F524941_04  # "NORIA", layout 4
BUILDING, SERVING, MOVED, DEAD = range(4)  # the low bits of STATE; the bits above are the number
STATE_BITS = 2
STATES = (1 << STATE_BITS) - 1

EMPTY, TOMBSTONE = 0, 1
_OFFSET_BITS = 48
OFFSET = (1 << _OFFSET_BITS) - 1
NO_VERSION = -1
COUNT = 1  # a word of a block: the number of rows, and from bit COUNT_BITS on the size class
COUNT_BITS = 48
COUNT_MASK = (1 << COUNT_BITS) - 1
PUBLISHED = 2  # a word of a block: the number of the tick that published it
KEY = 3  # the first key word of a block
LEAST_SLOTS = 64
PAD = 2 * MAX_KEY

_SEED = np.uint64(0x8CB92BA72F3D8DD7)
_S29, _S49 = np.uint64(29), np.uint64(49)
_LEAST_BLOCK = 4


@njit(inline="always")
def seed():
    return _SEED


@njit(inline="always")
def place(h, mask):
    """The first slot to probe."""
    return np.int64((h ^ (h >> _S29)) & np.uint64(mask))


@njit(inline="always")
def tag(h):
    """The hash bits of a slot word, in their position; the word stays positive."""
    return np.int64(h >> _S49) << _OFFSET_BITS


@njit(inline="always")
def first_slot(A, power):
    """The number of the first slot of the index of 2**power slots."""
    return (np.int64(1) << power) - A[FIRST]


@njit(inline="always")
def slots_in_use(A, indexed):
    """The numbers of all slots of the indexes in use, as (first, last + 1).  `indexed`: a value of INDEXED."""
    first = first_slot(A, indexed >> 1)
    return first, first + (((indexed & 1) * 2 + 1) << (indexed >> 1))


@njit(inline="always")
def place_of(A, slot, indexed):
    """The word offset of a slot of an index in use."""
    number, power = slot + A[FIRST], indexed >> 1
    if number >> (power + 1):
        power += 1
    return A[INDEXES + power] + number - (np.int64(1) << power)


@njit(inline="always")
def class_words(c):
    """The words of a block of a size class.  There are four classes for each doubling."""
    base = np.int64(_LEAST_BLOCK) << (c >> 2)
    return base + (base >> 2) * (c & 3)


@njit
def class_of(words):
    """The least size class that holds `words` words."""
    octave = 0
    while (_LEAST_BLOCK << (octave + 1)) < words:
        octave += 1
    base = _LEAST_BLOCK << octave
    quarter = base >> 2
    steps = 0 if words <= base else (words - base + quarter - 1) // quarter
    return 4 * octave + steps


@njit(inline="always")
def block_words(keys, width, rows):
    return KEY + keys + rows * (width + 1)
