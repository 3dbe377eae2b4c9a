//! Holds only benches: see the files beside this folder.
