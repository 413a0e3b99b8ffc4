//! One request on its way through the gate.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderValue, Request, Response, StatusCode};
use tower_service::Service;

use super::{
    Rules,
    header::{self, FENCE_SEEN, Said},
};
use crate::fenced::{Pass, StaleFence};

type Entering = Pin<Box<dyn Future<Output = Result<Pass, StaleFence>> + Send>>;

/// The answer to come from a service behind the gate.
///
/// # Cancel safety
/// Dropped before the request was let in, nothing reaches the service; afterwards, what dropping the service's own answer
/// means. Either way nobody waits for this request any more.
pub struct FencedResponse<S: Service<Request<B>>, B> {
    state: State<S, B, S::Future>,
}

enum State<S, B, F> {
    /// The answer is known without asking the service.
    Refused(Option<Refusal>),
    /// Earlier holders are still at work.
    Entering { entering: Entering, call: Option<(S, Request<B>)> },
    /// The service is at work; the pass, if the request has a fence, keeps later holders out. Fields are dropped in order:
    /// the work, then the pass.
    Inside { work: Pin<Box<F>>, _pass: Option<Pass> },
}

#[derive(Clone, Copy)]
enum Refusal {
    Missing,
    Nonsense,
    Stale(StaleFence),
}

impl<S: Service<Request<B>>, B> FencedResponse<S, B> {
    pub(super) fn begin(mut service: S, request: Request<B>, rules: &Rules) -> Self {
        let (parts, body) = request.into_parts();
        let said = header::read(&parts.headers, rules.lead_max);
        let resource = (rules.resource)(&parts);
        let is_free = rules.reads_unfenced && parts.method.is_safe();
        let request = Request::from_parts(parts, body);
        let state = match said {
            Said::Fence(fence) => {
                let gate = rules.gate.clone();
                let entering = Box::pin(async move { gate.enter(&resource, fence).await });
                State::Entering { entering, call: Some((service, request)) }
            }
            Said::Nothing if is_free => {
                State::Inside { work: Box::pin(service.call(request)), _pass: None }
            }
            Said::Nothing => State::Refused(Some(Refusal::Missing)),
            Said::Nonsense => State::Refused(Some(Refusal::Nonsense)),
        };
        Self { state }
    }
}

impl<S, B, R> Future for FencedResponse<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Output = Result<Response<R>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.state {
                State::Refused(refusal) => {
                    let refusal = refusal.take().expect("BUG: polled after its answer");
                    return Poll::Ready(Ok(refusal.into_response()));
                }
                State::Entering { entering, call } => {
                    let entered = ready!(entering.as_mut().poll(cx));
                    let (mut service, request) = call.take().expect("BUG: let in twice");
                    self.state = match entered {
                        Ok(pass) => {
                            let work = Box::pin(service.call(request));
                            State::Inside { work, _pass: Some(pass) }
                        }
                        Err(stale) => State::Refused(Some(Refusal::Stale(stale))),
                    };
                }
                State::Inside { work, _pass } => return work.as_mut().poll(cx),
            }
        }
    }
}

// What is polled is boxed: nothing in here is pinned in place.
impl<S: Service<Request<B>>, B> Unpin for FencedResponse<S, B> {}

impl Refusal {
    fn into_response<R: Default>(self) -> Response<R> {
        let mut response = Response::new(R::default());
        *response.status_mut() = match self {
            Self::Missing => StatusCode::PRECONDITION_REQUIRED,
            Self::Nonsense => StatusCode::BAD_REQUEST,
            Self::Stale(StaleFence { seen, .. }) => {
                response.headers_mut().insert(FENCE_SEEN, HeaderValue::from(seen.get()));
                StatusCode::PRECONDITION_FAILED
            }
        };
        response
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for FencedResponse<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Refused(_) => "FencedResponse::Refused",
            State::Entering { .. } => "FencedResponse::Entering",
            State::Inside { .. } => "FencedResponse::Inside",
        })
    }
}
