//! A service for notes that are read once or end by themselves: axum, typed values, tasks.
//!
//! `cargo run -p ebbtide-examples --bin notes`, and then
//!
//! ```text
//! curl --json '{"text": "the door code is 2718", "seconds": 60, "reads": 2}' http://127.0.0.1:8080/notes
//! curl http://127.0.0.1:8080/notes/0b5e...
//! ```
//!
//! Each reading takes one off what is left of a note, as one step, however many ask at once; the last deletes it. Its lifetime goes
//! on meanwhile. Nobody sees it after its end, and no task has to clean up.

use std::time::Duration;

use axum::extract::{Json, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use ebbtide::tokio::{AsyncDatabase, AsyncTypedContainer};
use ebbtide::{Error, Ttl, TypedItem, TypedUpdate};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Serialize, Deserialize)]
struct Note {
    text: String,
    seconds: u64,
    reads: u32,
}

type Notes = AsyncTypedContainer<Uuid, Note>;
type Answer<T> = Result<T, (StatusCode, String)>;

fn failed(error: Error) -> (StatusCode, String) {
    match error {
        Error::InvalidArgument { .. } => (StatusCode::BAD_REQUEST, error.to_string()),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn write(State(notes): State<Notes>, Json(note): Json<Note>) -> Answer<String> {
    let (id, lifetime) = (Uuid::new_v4(), Duration::from_secs(note.seconds));
    notes.create(id, &note, lifetime).await.map_err(failed)?;
    Ok(format!("/notes/{id}\n"))
}

async fn read(State(notes): State<Notes>, Path(id): Path<Uuid>) -> Answer<String> {
    let take_one = |note: Option<&TypedItem<Uuid, Note>>| match note.map(|note| note.value.clone())
    {
        Some(note) if note.reads > 1 => TypedUpdate::Put(
            Note {
                reads: note.reads - 1,
                ..note
            },
            Ttl::Keep,
        ),
        _ => TypedUpdate::Delete,
    };
    let taken = notes.fetch_update(id, take_one).await.map_err(failed)?;
    let gone = || {
        (
            StatusCode::NOT_FOUND,
            "no such note, or none any more\n".to_owned(),
        )
    };
    taken.before.map(|note| note.value.text).ok_or_else(gone)
}

async fn app(db: AsyncDatabase) -> ebbtide::Result<axum::Router> {
    let routes = axum::Router::new()
        .route("/notes", post(write))
        .route("/notes/{id}", get(read));
    Ok(routes.with_state(db.typed("notes").await?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = app(AsyncDatabase::open("notes").await?).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    Ok(axum::serve(listener, app).await?)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, header};
    use ebbtide::{ManualClock, Options};
    use tower::ServiceExt;

    use super::*;

    async fn ask(app: &axum::Router, request: Request<Body>) -> (StatusCode, String) {
        let answer = app.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let text = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    async fn read_note(app: &axum::Router, place: &str) -> (StatusCode, String) {
        let request = Request::get(place).body(Body::empty()).unwrap();
        ask(app, request).await
    }

    async fn write_note(app: &axum::Router, seconds: u64, reads: u32) -> (StatusCode, String) {
        let note = format!(r#"{{"text": "2718", "seconds": {seconds}, "reads": {reads}}}"#);
        let request = Request::post("/notes").header(header::CONTENT_TYPE, "application/json");
        let (status, place) = ask(app, request.body(Body::from(note)).unwrap()).await;
        (status, place.trim().to_owned())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_note_is_read_as_often_as_it_may_be_and_ends_by_itself() {
        let clock = ManualClock::new(1_800_000_000_000);
        let db = Options::new().clock(clock.clone()).open_temporary();
        let app = app(db.unwrap().into()).await.unwrap();
        let (status, place) = write_note(&app, 60, 3).await;
        assert_eq!(status, StatusCode::OK);
        let asked = (0..8).map(|_| {
            let (app, place) = (app.clone(), place.clone());
            tokio::spawn(async move { read_note(&app, &place).await })
        });
        let mut found = 0;
        for answer in Vec::from_iter(asked) {
            let (status, text) = answer.await.unwrap();
            assert_eq!(status == StatusCode::OK, text == "2718");
            found += usize::from(status == StatusCode::OK);
        }
        assert_eq!(found, 3, "of eight that ask at once");

        let (_, place) = write_note(&app, 60, 9).await;
        clock.advance(Duration::from_secs(59));
        assert_eq!(read_note(&app, &place).await.0, StatusCode::OK);
        clock.advance(Duration::from_secs(1));
        assert_eq!(read_note(&app, &place).await.0, StatusCode::NOT_FOUND);
        // A lifetime of nothing, and a name that is none.
        assert_eq!(write_note(&app, 0, 1).await.0, StatusCode::BAD_REQUEST);
        assert_eq!(read_note(&app, "/notes/x").await.0, StatusCode::BAD_REQUEST);
    }
}
