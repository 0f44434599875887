//! Settings that the warm-up of `clearstream flow` chooses where the command line names none.
