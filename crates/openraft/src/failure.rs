//! Errors of the engine, as openraft is to hear of them: some pass, and are waited for; the others stop the node.

use std::time::Duration;

use ebbtide::Error;
use openraft::type_config::TypeConfigExt;
use openraft::{
    AnyError, ErrorSubject, ErrorVerb, LogId, NodeId, RaftTypeConfig, StorageError, StorageIOError,
};

/// The longest wait between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Pauses between attempts, each twice as long as the one before.
pub struct Pauses(Duration);

impl Pauses {
    pub fn new() -> Pauses {
        Pauses(Duration::from_millis(5))
    }

    pub async fn wait<C: RaftTypeConfig>(&mut self) {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        C::sleep(pause).await;
    }
}

/// Repeats what fails for a want of room, memory, descriptors or flushing, which differ between replicas and pass.
pub async fn patiently<C: RaftTypeConfig, T>(
    mut attempt: impl FnMut() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let mut pauses = Pauses::new();
    loop {
        match attempt() {
            Err(error) if error.is_retryable() => pauses.wait::<C>().await,
            result => return result,
        }
    }
}

fn failure<N: NodeId>(
    subject: ErrorSubject<N>,
    verb: ErrorVerb,
    error: AnyError,
) -> StorageError<N> {
    StorageIOError::new(subject, verb, error).into()
}

pub fn of_log<N: NodeId>(
    verb: ErrorVerb,
    error: &(impl std::error::Error + 'static),
) -> StorageError<N> {
    failure(ErrorSubject::Logs, verb, AnyError::new(error))
}

pub fn of_vote<N: NodeId>(
    verb: ErrorVerb,
    error: &(impl std::error::Error + 'static),
) -> StorageError<N> {
    failure(ErrorSubject::Vote, verb, AnyError::new(error))
}

pub fn of_state<N: NodeId>(
    verb: ErrorVerb,
    error: &(impl std::error::Error + 'static),
) -> StorageError<N> {
    failure(ErrorSubject::StateMachine, verb, AnyError::new(error))
}

pub fn of_snapshot<N: NodeId>(
    verb: ErrorVerb,
    error: &(impl std::error::Error + 'static),
) -> StorageError<N> {
    failure(ErrorSubject::Snapshot(None), verb, AnyError::new(error))
}

pub fn of_apply<N: NodeId>(log_id: LogId<N>, error: AnyError) -> StorageError<N> {
    failure(ErrorSubject::Apply(log_id), ErrorVerb::Write, error)
}
