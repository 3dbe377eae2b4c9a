//! What to send and what a stream's bytes mean, per provider, without sockets.
