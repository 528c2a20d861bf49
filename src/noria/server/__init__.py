"""What clients talk to: the MySQL protocol, HTTP, and the node that wires everything."""
