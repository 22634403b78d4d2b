//! Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::error::CliError;

/// The exit code of a program that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// What else an interruption does.
static THEN: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// A flag that Ctrl-C raises; a second Ctrl-C ends the program at once.
pub(crate) fn flag() -> Result<Arc<AtomicBool>, CliError> {
    static RAISED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
    ctrlc::set_handler(|| {
        if RAISED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        if let Some(then) = &*THEN.lock().unwrap_or_else(PoisonError::into_inner) {
            then();
        }
    })
    .map_err(|error| CliError::failed(format!("Ctrl-C cannot be caught: {error}")))?;
    Ok(Arc::clone(&RAISED))
}

/// Has the first Ctrl-C call `then`, once the flag is raised: for whoever blocks meanwhile.
pub(crate) fn then(then: impl Fn() + Send + 'static) {
    *THEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(then));
}
