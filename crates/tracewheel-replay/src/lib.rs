//! Joins plan, wheel, protocol, transport, retry and budgets into one run; emits one event stream.
