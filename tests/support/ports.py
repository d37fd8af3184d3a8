"""Ports that nobody listens on."""

import socket


def free_ports(count=2):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(taken.getsockname()[1]) for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports
