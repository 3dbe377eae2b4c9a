//! What each command does, one file a command.

pub(crate) mod bounds;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod ingest;
pub(crate) mod inputs;
pub(crate) mod inspect;
pub(crate) mod man;
pub(crate) mod mock;
pub(crate) mod recover;
pub(crate) mod replay;
