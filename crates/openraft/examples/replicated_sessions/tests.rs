//! Goal: the example does what it says.

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_its_leader_and_ends_on_time() {
    let folder = tempfile::tempdir().unwrap();
    let told = super::run(folder.path()).await.unwrap();
    assert_eq!(
        told,
        [
            "s-2 is there: true",
            "after the leader is lost, s-1 is there: true",
            "five seconds later, s-2 is there: false",
            "logged out of s-1: true",
        ]
    );
}
