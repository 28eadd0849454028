//! A site with logins. A session ends when it was idle for a while, and at a fixed time after the login however busy it is;
//! its user sees all of their sessions, and ends one or all.
//!
//! `cargo run -p tower-sessions-ebbtide --example site -- [--folder DIR] [--port N] [--idle SECONDS] [--absolute SECONDS]`
//!
//! Ada's password is `engine`, Grace's is `nanosecond`. Without a folder the sessions are in memory, without a port the
//! system chooses one. The timeouts are half an hour and half a day.
//!
//! Both timeouts are one: with each request a session's end moves to the idle timeout from then, and never beyond the absolute
//! one, which stands in the session. The store ends it at that millisecond; no task looks for what has ended.
//! The browser forgets its cookie up to a second before, for the age of a cookie is in whole seconds.

use std::error::Error;
use std::time::Duration;

use axum::extract::{Form, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Router, serve};
use ebbtide::Options;
use ebbtide::tokio::AsyncDatabase;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tower_sessions::cookie::SameSite;
use tower_sessions::{Expiry, Session, SessionManagerLayer};
use tower_sessions_ebbtide::{EbbtideStore, UserSession};

const USERS: [(&str, &str); 2] = [("ada", "engine"), ("grace", "nanosecond")];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = |name, default| -> Result<Duration, Box<dyn Error>> {
        let given = argument(name).map_or(Ok(default), |given| given.parse())?;
        Ok(Duration::from_secs(given))
    };
    let (idle, absolute) = (seconds("--idle", 1_800)?, seconds("--absolute", 43_200)?);
    let db = match argument("--folder") {
        Some(folder) => AsyncDatabase::open(folder).await?,
        None => Options::temporary()?.into(),
    };
    let port = argument("--port").map_or(Ok(0), |given| given.parse())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}", listener.local_addr()?);
    let site = Site::open(db, idle, absolute).await?;
    Ok(serve(listener, site.routes()).await?)
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

#[derive(Clone)]
struct Site {
    db: AsyncDatabase,
    store: EbbtideStore,
    idle: Duration,
    absolute: Duration,
}

impl Site {
    async fn open(db: AsyncDatabase, idle: Duration, absolute: Duration) -> ebbtide::Result<Site> {
        let store = EbbtideStore::open(&db, "sessions").await?.user_key("user");
        Ok(Site {
            db,
            store,
            idle,
            absolute,
        })
    }

    fn routes(&self) -> Router {
        let sessions = SessionManagerLayer::new(self.store.clone())
            // Links from elsewhere find the user logged in; forms from elsewhere do not.
            .with_same_site(SameSite::Lax)
            .with_http_only(true)
            // Without TLS, on this machine alone.
            .with_secure(false);
        Router::new()
            .route("/", get(home))
            .route("/login", post(log_in))
            .route("/logout", post(log_out))
            .route("/logout-everywhere", post(log_out_everywhere))
            .layer(from_fn_with_state(self.clone(), slide))
            .layer(sessions)
            .with_state(self.clone())
    }

    /// When a session ends that is used now and whose absolute timeout is at `last`.
    fn expiry(&self, last: OffsetDateTime) -> Expiry {
        Expiry::AtDateTime(last.min((self.db.now() + self.idle).into()))
    }
}

async fn slide(
    State(site): State<Site>,
    session: Session,
    request: Request,
    next: Next,
) -> Result<Response, Failed> {
    if let Some(last) = session.get("last").await? {
        session.set_expiry(Some(site.expiry(last)));
    }
    Ok(next.run(request).await)
}

#[derive(serde::Deserialize)]
struct Login {
    name: String,
    password: String,
}

async fn log_in(
    State(site): State<Site>,
    session: Session,
    Form(Login { name, password }): Form<Login>,
) -> Result<Response, Failed> {
    if !USERS.contains(&(&name, &password)) {
        let page =
            page("<p>There is no such user, or the password is another.<p><a href=/>Again</a>");
        return Ok((StatusCode::UNAUTHORIZED, page).into_response());
    }
    // An id from before the login may be known to somebody else.
    session.cycle_id().await?;
    let last = OffsetDateTime::from(site.db.now() + site.absolute);
    session.insert("user", name).await?;
    session.insert("last", last).await?;
    session.set_expiry(Some(site.expiry(last)));
    Ok(Redirect::to("/").into_response())
}

async fn home(State(site): State<Site>, session: Session) -> Result<Html<String>, Failed> {
    let Some(user) = session.get::<String>("user").await? else {
        return Ok(page(
            "<form method=post action=/login><input name=name placeholder=name>\
             <input name=password type=password placeholder=password><button>Log in</button></form>",
        ));
    };
    let now = OffsetDateTime::from(site.db.now());
    let row = |of: &UserSession| {
        let is_this = session.id() == Some(of.id);
        // A request's change of its own session is saved after it.
        let (written, ends) = match is_this {
            true => (now, Some(session.expiry_date())),
            false => (of.written, of.expires),
        };
        format!(
            "<tr><td>{}…<td>{} s ago<td>in {} s<td>{}",
            &of.id.to_string()[..6],
            (now - written).whole_seconds(),
            ends.map_or(0, |ends| (ends - now).whole_seconds()),
            if is_this { "this one" } else { "" },
        )
    };
    let sessions = site.store.sessions_of(&user).await?;
    let rows: String = sessions.iter().map(row).collect();
    Ok(page(&format!(
        "<p id=user>You are {user}.<table><tr><th>session<th>used<th>ends<th>{rows}</table>\
         <form method=post action=/logout><button>Log out</button></form>\
         <form method=post action=/logout-everywhere><button>Log out everywhere</button></form>"
    )))
}

async fn log_out(session: Session) -> Result<Redirect, Failed> {
    session.flush().await?;
    Ok(Redirect::to("/"))
}

async fn log_out_everywhere(
    State(site): State<Site>,
    session: Session,
) -> Result<Redirect, Failed> {
    if let Some(user) = session.get::<String>("user").await? {
        site.store.log_out_everywhere(&user).await?;
    }
    log_out(session).await
}

fn page(body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html><meta charset=utf-8><title>Sessions</title>{body}"
    ))
}

/// A request that cannot be answered: the log says why, and the answer does not.
struct Failed(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        eprintln!("a request failed: {}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
    use axum::http::{Method, Response};
    use ebbtide::ManualClock;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);
    const ABSOLUTE: Duration = Duration::from_secs(200);
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// It keeps a cookie that the site does not take back, whatever the cookie says of its age: the site alone ends a session.
    struct Browser {
        site: Router,
        cookie: Option<String>,
    }

    impl Browser {
        fn new(site: &Router) -> Browser {
            Browser {
                site: site.clone(),
                cookie: None,
            }
        }

        async fn send(&mut self, method: Method, path: &str, form: &'static str) -> Response<Body> {
            let mut request = axum::http::Request::builder()
                .method(method)
                .uri(path)
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            if let Some(cookie) = &self.cookie {
                request = request.header(COOKIE, cookie);
            }
            let request = request.body(Body::from(form)).unwrap();
            let answer = self.site.clone().oneshot(request).await.unwrap();
            if let Some(set) = answer.headers().get(SET_COOKIE) {
                let set = set.to_str().unwrap();
                let is_removed = set.starts_with("id=;");
                let is_guarded = set.contains("HttpOnly") && set.contains("SameSite=Lax");
                assert!(is_removed || is_guarded, "{set}");
                let cookie = set.split(';').next().map(str::to_owned);
                self.cookie = cookie.filter(|_| !is_removed);
            }
            answer
        }

        async fn post(&mut self, path: &str, form: &'static str) -> StatusCode {
            self.send(Method::POST, path, form).await.status()
        }

        async fn log_in(&mut self) {
            let status = self.post("/login", "name=ada&password=engine").await;
            assert_eq!(status, StatusCode::SEE_OTHER);
        }

        async fn home(&mut self) -> String {
            let answer = self.send(Method::GET, "/", "").await;
            assert_eq!(answer.status(), StatusCode::OK);
            let page = answer.into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(page.to_vec()).unwrap()
        }

        async fn is_in(&mut self) -> bool {
            self.home().await.contains("You are ada.")
        }
    }

    async fn site() -> (tempfile::TempDir, ManualClock, Router) {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let db = AsyncDatabase::open_with(&options, folder.path())
            .await
            .unwrap();
        let site = Site::open(db, IDLE, ABSOLUTE).await.unwrap();
        (folder, clock, site.routes())
    }

    #[tokio::test]
    async fn an_idle_session_ends_and_each_request_puts_that_off() {
        let (_folder, clock, site) = site().await;
        let mut browser = Browser::new(&site);
        assert!(!browser.is_in().await);
        browser.log_in().await;
        for _ in 0..2 {
            clock.advance(IDLE - MILLISECOND);
            assert!(browser.is_in().await);
        }
        clock.advance(IDLE);
        assert!(!browser.is_in().await);
    }

    #[tokio::test]
    async fn a_busy_session_ends_at_the_absolute_timeout() {
        let (_folder, clock, site) = site().await;
        let mut browser = Browser::new(&site);
        browser.log_in().await;
        for step in [ABSOLUTE / 4; 3] {
            clock.advance(step);
            assert!(browser.is_in().await);
        }
        clock.advance(ABSOLUTE / 4 - MILLISECOND);
        assert!(browser.home().await.contains("<td>in 0 s<td>this one"));
        clock.advance(MILLISECOND);
        assert!(!browser.is_in().await);
    }

    #[tokio::test]
    async fn one_session_is_ended_or_all_of_a_user() {
        let (_folder, _clock, site) = site().await;
        let mut browsers = [0; 3].map(|_| Browser::new(&site));
        for browser in &mut browsers {
            browser.log_in().await;
        }
        let [first, second, third] = &mut browsers;
        assert_eq!(first.home().await.matches("<tr><td>").count(), 3);
        assert_eq!(first.post("/logout", "").await, StatusCode::SEE_OTHER);
        assert!(!first.is_in().await && second.is_in().await);
        assert_eq!(second.home().await.matches("<tr><td>").count(), 2);
        assert_eq!(
            second.post("/logout-everywhere", "").await,
            StatusCode::SEE_OTHER
        );
        assert!(!second.is_in().await && !third.is_in().await);
    }

    #[tokio::test]
    async fn a_login_needs_the_password_and_gets_an_id_of_its_own() {
        let (_folder, _clock, site) = site().await;
        let mut browser = Browser::new(&site);
        let refused = browser.post("/login", "name=ada&password=nanosecond").await;
        assert_eq!(
            (refused, &browser.cookie),
            (StatusCode::UNAUTHORIZED, &None)
        );
        browser.log_in().await;
        let former = browser.cookie.clone();
        browser.log_in().await;
        let mut thief = Browser::new(&site);
        thief.cookie = former;
        assert!(browser.is_in().await && !thief.is_in().await);
    }
}
