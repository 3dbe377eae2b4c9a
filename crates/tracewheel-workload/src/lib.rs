//! Pure timeline-to-plan functions: window, speed, sessions, prompts that keep prefix sharing.
