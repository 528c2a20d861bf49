"""From a statement to its rows, whoever asks:

    statements  what has been parsed, by text and by shape
    keys        what a client's values mean as keys
    shapes      what is done to the rows of a lookup
    reads       lookups: shared memory, else one upquery for all who wait
    replies     what fronts sent, kept while it is true
    locks       LOCK TABLES
    clock       the time in writes that ask for it
    zones       TIMESTAMPs of sessions elsewhere than in UTC
    executor    all of it together
"""
