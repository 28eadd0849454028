//! A few threads for work that may wait.
//!
//! ```text
//! add ──> queue ──> a thread: does somebody wait for it still? ── yes ──> work ──> the answer
//!                                                              └─ no: it is dropped, and never begins
//! ```
//!
//! Invariants:
//!
//! 1. Work begins at most once. Work that has begun is done to its end, whether or not somebody still waits for it.
//! 2. There are at most `most` threads; one is started when a job comes that no idle one will take. So however many tasks
//!    wait, the pool does not grow, and each waiting task has one job in the queue.
//! 3. After [`Pool`] is dropped the threads do the queued work, and end.
//!
//! Not `spawn_blocking`: its threads are as many as tasks wait, up to 512, unless a semaphore is put before it, and with
//! that a job took 13 to 17 us here where this one took 2.5 (docs/decisions/tasks.md has the figures). And it is not there
//! for a program whose runtime is shut down, or is another one.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::sync::oneshot;

use crate::base::sync::{Condvar, Mutex};
use crate::base::{Error, Result};
use crate::env::spawn;

type Job = Box<dyn FnOnce() + Send>;

/// The outcome of some work: its answer, or the payload of its panic.
type Outcome<T> = std::result::Result<Result<T>, Box<dyn Any + Send>>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// See the file's head.
pub struct Pool {
    queue: Arc<Queue>,
    most: usize,
}

impl Pool {
    /// A pool of at most so many threads; none is started yet.
    pub fn new(most: usize) -> Pool {
        Pool {
            queue: Arc::default(),
            most,
        }
    }

    /// Has one of the threads do the work, unless the answer is dropped before it begins.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        let (job, answer) = job(work);
        self.add(job)?;
        Ok(answer)
    }

    fn add(&self, job: Job) -> Result<()> {
        let mut state = self.queue.state.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.most {
            let queue = self.queue.clone();
            match spawn("ebbtide-tasks", move || serve(&queue)) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.jobs.pop_back();
                    return Err(error);
                }
                // The other threads will come to the job.
                Err(_) => {}
            }
        }
        if state.idle > 0 {
            self.queue.changed.notify_one();
        }
        Ok(())
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.queue.state.lock().threads
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.state.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

/// Has a thread of its own do the work.
pub fn run_apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<Answer<T>> {
    let (job, answer) = job(work);
    spawn("ebbtide-tasks", job)?;
    Ok(answer)
}

fn job<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> (Job, Answer<T>) {
    let (answer, answered) = oneshot::channel();
    let job = move || {
        if !answer.is_closed() {
            // The task that waited may be gone by now.
            let _ = answer.send(catch_unwind(AssertUnwindSafe(work)));
        }
    };
    (Box::new(job), Answer(answered))
}

/// The loop of a thread of the pool.
fn serve(queue: &Queue) {
    let mut state = queue.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = queue.state.lock();
        } else if state.is_closed {
            return;
        } else {
            state.idle += 1;
            queue.changed.wait(&mut state);
            state.idle -= 1;
        }
    }
}

/// The outcome that some work will have. A panic of the work continues here.
pub struct Answer<T>(oneshot::Receiver<Outcome<T>>);

impl<T> Future for Answer<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|outcome| match outcome {
                Ok(Ok(answer)) => answer,
                Ok(Err(panic)) => resume_unwind(panic),
                Err(_) => Err(Error::Closed),
            })
    }
}
