//! The target that `CLEARSTREAM_FUZZ_TARGET` names, under libFuzzer.
#![no_main]

use std::{env, sync::LazyLock};

/// Of every input, and an unknown name ends the first one.
static NAME: LazyLock<String> = LazyLock::new(|| env::var("CLEARSTREAM_FUZZ_TARGET").unwrap_or_default());

libfuzzer_sys::fuzz_target!(|input: &[u8]| clearstream_fuzz::run(&NAME, input));
