"""One worker among several: exchanges, requests for other workers' rows, frontiers (section 6.2).

Messages of peers come in; ticks, pieces and answers go out.
A message is handled in the order in which its sender sent it.
"""
