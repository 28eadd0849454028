//! Goal: the store does what tower-sessions asks of one.
//!
//! Method: the tests that ship inside the crate tower-sessions, of the version that is locked, run unchanged over this store.
//! The build script says where they are.

#![allow(warnings, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

mod over_ebbtide {
    use axum::Router;
    use ebbtide::Options;
    use ebbtide::tokio::AsyncDatabase;
    use tower_sessions::SessionManagerLayer;
    use tower_sessions_ebbtide::EbbtideStore;

    use crate::common::build_app;

    async fn app(max_age: Option<Duration>, domain: Option<String>) -> Router {
        let db = AsyncDatabase::from(Options::temporary().unwrap());
        let store = EbbtideStore::open(&db, "sessions").await.unwrap();
        let sessions = SessionManagerLayer::new(store).with_secure(true);
        build_app(sessions, max_age, domain)
    }

    route_tests!(app);
}
