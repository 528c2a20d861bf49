"""One worker among several: exchanges, requests for other workers' rows, frontiers (section 6.2).

`Peers` receives and sends the messages. It handles them in the order in which each sender sent them.
"""
