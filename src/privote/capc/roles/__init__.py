"""The three roles as state machines: an event in, actions out; no sockets, threads or clock."""
