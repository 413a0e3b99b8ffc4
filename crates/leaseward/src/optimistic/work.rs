//! The work of one try.

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use super::Failure;

/// What a transaction does, once for each try: an `async move` block that may use the transaction, and by reference whatever
/// lives longer than the call.
///
/// A type of its own, and boxed, because the compiler cannot yet tell of an async closure's future that it is `Send`.
pub struct Work<'env, 'a, T> {
    future: Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>,
    /// What is borrowed from outside (`'env`) lives longer than the try (`'a`).
    scope: PhantomData<&'a &'env ()>,
}

impl<'a, T> Work<'_, 'a, T> {
    /// This, to be done.
    pub fn new(future: impl Future<Output = Result<T, Failure>> + Send + 'a) -> Self {
        Self { future: Box::pin(future), scope: PhantomData }
    }
}

impl<T> Future for Work<'_, '_, T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Work<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}
