//! TCP streams whose reads and writes carry kernel and user stamps.
