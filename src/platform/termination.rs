//! The ways in which this process is asked to end.

/// Resolves when the process is asked to end: interrupt, terminate or hang-up on Unix, Ctrl-C, Ctrl-Break,
/// close or shutdown on Windows.
#[cfg(unix)]
pub async fn termination() {
    use tokio::signal::unix::{SignalKind, signal};
    let arrived = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            // Without a handler the default action applies, which ends the process anyway.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = arrived(SignalKind::interrupt()) => {}
        () = arrived(SignalKind::terminate()) => {}
        () = arrived(SignalKind::hangup()) => {}
    }
}

/// Resolves when the process is asked to end: interrupt, terminate or hang-up on Unix, Ctrl-C, Ctrl-Break,
/// close or shutdown on Windows.
#[cfg(windows)]
pub async fn termination() {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};
    macro_rules! arrived {
        ($listen:path) => {
            async {
                match $listen() {
                    Ok(mut signals) => {
                        signals.recv().await;
                    }
                    Err(_) => std::future::pending().await,
                }
            }
        };
    }
    tokio::select! {
        () = arrived!(ctrl_c) => {}
        () = arrived!(ctrl_break) => {}
        () = arrived!(ctrl_close) => {}
        () = arrived!(ctrl_shutdown) => {}
    }
}
