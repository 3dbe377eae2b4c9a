//! Whole commands, as a person runs them, against the built-in endpoint and against servers that misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a test may fail at once, and its servers may sleep"
)]

#[path = "whole/cache.rs"]
mod cache;
#[path = "whole/clients.rs"]
mod clients;
#[path = "whole/commands.rs"]
mod commands;
#[path = "whole/connections.rs"]
mod connections;
#[path = "whole/demo.rs"]
mod demo;
#[path = "whole/dialects.rs"]
mod dialects;
#[path = "whole/doctor.rs"]
mod doctor;
#[path = "whole/exit_codes.rs"]
mod exit_codes;
#[path = "whole/failures.rs"]
mod failures;
#[path = "whole/fidelity.rs"]
mod fidelity;
#[path = "whole/full_disk.rs"]
mod full_disk;
#[path = "whole/harness.rs"]
mod harness;
#[path = "whole/hooks.rs"]
mod hooks;
#[path = "whole/http2.rs"]
mod http2;
#[path = "whole/imports.rs"]
mod imports;
#[path = "whole/interruption.rs"]
mod interruption;
#[path = "whole/kill.rs"]
mod kill;
#[path = "whole/manners.rs"]
mod manners;
#[path = "whole/memory.rs"]
mod memory;
#[path = "whole/misuse.rs"]
mod misuse;
#[path = "../../tracewheel-net/tests/support/pki.rs"]
mod pki;
#[path = "whole/prompts.rs"]
mod prompts;
#[path = "whole/routes.rs"]
mod routes;
#[path = "whole/scheduling.rs"]
mod scheduling;
#[path = "whole/secrets.rs"]
mod secrets;
#[path = "whole/tls.rs"]
mod tls;
#[path = "whole/truth.rs"]
mod truth;
#[path = "whole/walks.rs"]
mod walks;
