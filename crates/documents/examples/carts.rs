//! Carts by user: an hour each, a condition, a query, a changed default. `cargo run -p ebbtide-documents --example carts`

use ebbtide_documents::{
    Conditions, ContainerDefinition, Documents, PartitionKey, QueryLimits, Scope,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let documents = Documents::open(folder.path())?;
    documents.create_database("shop")?;
    let mut carts = ContainerDefinition::new("carts", "/user");
    carts.default_ttl = "1h".parse()?; // "defaultTtl": 3600
    let carts = documents.create_container("shop", carts)?;

    let ada = PartitionKey::from("ada");
    let cart = carts.create(
        &ada,
        br#"{"id": "c-1", "user": "ada", "tea": 2, "ttl": 60}"#,
    )?;
    let unchanged = Conditions::if_match(cart.version);
    carts.replace(
        &ada,
        "c-1",
        br#"{"id": "c-1", "user": "ada", "tea": 3}"#,
        &unchanged,
    )?;
    let again = carts.delete(&ada, "c-1", &unchanged);
    assert_eq!(again.unwrap_err().status(), 412); // its etag is another one now

    let query = "SELECT c.id, c.tea FROM c WHERE c.user = @user AND c.tea > 2";
    let parameters = [("@user".to_owned(), "ada".into())];
    let limits = QueryLimits::default();
    let page = carts.query(query, &parameters, &Scope::everything(), &limits, None)?;
    assert_eq!(page.rows, [r#"{"id":"c-1","tea":3}"#]);

    let mut shorter = (*carts.definition()).clone();
    shorter.default_ttl = "1s".parse()?;
    documents.replace_container("shop", shorter)?; // at once, for all that is there
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(carts.read(&ada, "c-1").unwrap_err().status(), 404);
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
