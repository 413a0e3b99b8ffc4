//! HTTP services: a tower layer that lets only current holders through.
//!
//! The client sends its fence with each request:
//!
//! ```text
//! PUT /accounts/1
//! Leaseward-Fence: 1794742800000000
//! ```
//!
//! | the request's fence | answer |
//! | --- | --- |
//! | at least as large as every one this resource has seen | that of the service |
//! | smaller | `412 Precondition Failed`, with the highest seen in `Leaseward-Fence-Seen` |
//! | missing | `428 Precondition Required` |
//! | no number, given twice, or far ahead of the clock | `400 Bad Request` |
//!
//! A later holder's request waits until those before it are answered: the service must have written when it answers. Work
//! that it leaves to a task of its own is not waited for.
//!
//! Whoever may send requests may name any fence: put authentication in front. A fence that is ahead of this machine's clock
//! by more than [`FenceLayer::lead_max`] is refused, so that one request with an absurd number does not lock everybody out
//! for ever.
//!
//! ```
//! use axum::{Router, routing::put};
//! use leaseward::fenced::{FenceGate, http::FenceLayer};
//!
//! // One process is the service, so its memory is enough; a fence is seen per path.
//! let app: Router = Router::new()
//!     .route("/accounts/{id}", put(async || "written"))
//!     .layer(FenceLayer::new(FenceGate::bounded(100_000)));
//! # drop(app);
//! ```

mod future;
mod header;

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

pub use future::FencedResponse;
pub use header::{FENCE, FENCE_SEEN};

use super::FenceGate;

/// Far more than a store's counter or two machines' clocks are ever apart, and soon over after a mistake.
const LEAD_MAX: Duration = Duration::from_secs(60 * 60);

type Resource = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// Puts a [`FenceGate`] in front of a service. See the [module](self).
#[derive(Clone)]
pub struct FenceLayer {
    rules: Rules,
}

/// What requests are held to.
#[derive(Clone)]
struct Rules {
    gate: FenceGate,
    resource: Resource,
    lead_max: Duration,
    reads_unfenced: bool,
}

impl FenceLayer {
    /// Each path is a resource, and every request needs a fence.
    pub fn new(gate: FenceGate) -> Self {
        let resource: Resource = Arc::new(|request| request.uri.path().to_owned());
        Self { rules: Rules { gate, resource, lead_max: LEAD_MAX, reads_unfenced: false } }
    }

    /// Which resource a request is about, if not its path: what the client's lease protects.
    #[must_use]
    pub fn resource<F>(mut self, resource: F) -> Self
    where
        F: Fn(&Parts) -> String + Send + Sync + 'static,
    {
        self.rules.resource = Arc::new(resource);
        self
    }

    /// Lets `GET`, `HEAD`, `OPTIONS` and `TRACE` through without a fence; with one they are checked.
    #[must_use]
    pub fn reads_unfenced(mut self) -> Self {
        self.rules.reads_unfenced = true;
        self
    }

    /// How far a fence may be ahead of this machine's clock: an hour if not set.
    #[must_use]
    pub fn lead_max(mut self, lead: Duration) -> Self {
        self.rules.lead_max = lead;
        self
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { inner, rules: self.rules.clone() }
    }
}

/// A service that only current holders reach; made by [`FenceLayer`].
#[derive(Clone)]
pub struct Fenced<S> {
    inner: S,
    rules: Rules,
}

impl<S, B, R> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = FencedResponse<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> FencedResponse<S, B> {
        // The one that was polled ready is called; its clone takes its place.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        FencedResponse::begin(ready, request, &self.rules)
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer").field("gate", &self.rules.gate).finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for Fenced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced").field("inner", &self.inner).finish_non_exhaustive()
    }
}
