//! Where the answers to a batch go.

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::Answer;
use crate::{Error, ErrorKind};

/// Takes the answers to a batch, each once, from any thread, in any order, also inside of
/// [`submit`](super::Store::submit).
///
/// Dropped, it answers what is left as *indeterminate*: nobody knows what became of it. It spawns nothing, needs no runtime
/// and never panics. A store that answers holds no lock that `submit` needs: what follows from an answer may call it.
pub struct Completion {
    sink: Box<dyn FnMut(usize, Answer) + Send>,
    is_answered: SmallVec<[bool; 8]>,
}

impl Completion {
    /// Takes so many answers; `sink` gets each with its place in the batch, and is dropped when nothing is left to come.
    pub fn new(len: usize, sink: impl FnMut(usize, Answer) + Send + 'static) -> Self {
        Self { sink: Box::new(sink), is_answered: SmallVec::from_elem(false, len) }
    }

    /// Answers the operation at this place. A second answer to it is dropped.
    pub fn answer(&mut self, at: usize, answer: Answer) {
        if !std::mem::replace(&mut self.is_answered[at], true) {
            (self.sink)(at, answer);
        }
    }

    /// Answers all operations, in their order.
    pub fn answer_all(mut self, answers: impl IntoIterator<Item = Answer>) {
        for (at, answer) in answers.into_iter().enumerate() {
            self.answer(at, answer);
        }
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion").field("is_answered", &self.is_answered).finish_non_exhaustive()
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        for at in 0..self.is_answered.len() {
            if !self.is_answered[at] {
                self.answer(at, Err(unheard()));
            }
        }
    }
}

fn unheard() -> Error {
    Error::new(ErrorKind::Indeterminate, "the store's answer was not heard")
}

/// A completion, and where its answers come, in the order of the operations.
pub(super) fn collected(len: usize) -> (Completion, oneshot::Receiver<Vec<Answer>>) {
    let (tell, told) = oneshot::channel();
    let mut collected = Collected { answers: (0..len).map(|_| None).collect(), tell: Some(tell) };
    (Completion::new(len, move |at, answer| collected.answers[at] = Some(answer)), told)
}

/// Answers on their way to a caller that waits for all of them.
struct Collected {
    answers: Vec<Option<Answer>>,
    tell: Option<oneshot::Sender<Vec<Answer>>>,
}

impl Drop for Collected {
    fn drop(&mut self) {
        let answers = std::mem::take(&mut self.answers).into_iter();
        let answers = answers.map(|answer| answer.unwrap_or_else(|| Err(unheard()))).collect();
        if let Some(tell) = self.tell.take() {
            let _ = tell.send(answers);
        }
    }
}

/// Gives the answers that a future comes to, from a task of its own: for stores whose drivers give futures.
pub fn answer_later(
    answers: impl Future<Output = Vec<Answer>> + Send + 'static,
    reply: Completion,
) {
    // On a runtime that has shut down the task is dropped at once, and the completion with it.
    tokio::spawn(async move { reply.answer_all(answers.await) });
}
