//! Documents: the rules and the queries of Azure Cosmos DB from a shell.
//!
//! Reading works beside a process that has the database open. Writing does not: who serves it takes documents by HTTP.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use ebbtide::{Durability, Options};
use ebbtide_cli::given;
use ebbtide_documents::{
    Conditions, Container, ContainerDefinition, Continuation, Document, Documents, Error,
    ErrorKind, PartitionKey, QueryLimits, Scope,
};
use serde_json::Value;

use crate::arguments::{DocumentAction, DocumentId, DocumentsArgs, Home, MadeContainer, Writing};
use crate::failure::{self, Failure, Outcome};
use crate::input::Lines;
use crate::{ask, show, store};

/// So many documents are read at a time.
const PAGE: usize = 1_000;
/// So long a query may take to its next page: somebody waits for it, who may end it.
const PATIENCE: Duration = Duration::from_secs(86_400);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Failure::NotFound(error.to_string()),
            _ => Failure::Refused(error.to_string()),
        }
    }
}

pub fn run(action: &DocumentAction, json: bool) -> Outcome {
    match action {
        DocumentAction::Create(made) => create(made, json),
        DocumentAction::List { home, of } => list(home, of.as_deref()),
        DocumentAction::Put {
            place,
            document,
            writing,
        } => put(place, document, *writing),
        DocumentAction::Import {
            place,
            file,
            skip_bad,
            writing,
        } => import(place, file, *skip_bad, *writing, json),
        DocumentAction::Ttl { place, default } => ttl(place, default.as_deref(), json),
        DocumentAction::Get(document) => {
            let container = container(&read(&document.place.home)?, &document.place.container)?;
            let found = container.read(&partition_key(&container, document)?, &document.id)?;
            print(&found)
        }
        DocumentAction::Delete { document, writing } => delete(document, *writing),
        DocumentAction::Query {
            place,
            query,
            parameters,
            limit,
        } => select(place, query, parameters, limit.unwrap_or(usize::MAX)),
        DocumentAction::Drop { home, of, yes } => drop_all(home, of, *yes),
    }
}

fn read(home: &Home) -> Outcome<Documents> {
    let db = store::read(home)?;
    if !Documents::are_in(&db) {
        let dir = home.dir.display();
        let why =
            format!("there are no documents in {dir}: `ebbtide doc create` makes a container");
        return Err(Failure::NotFound(why));
    }
    Ok(Documents::with(db)?)
}

/// Of an existing folder of documents, or a new one.
fn write(home: &Home, writing: Writing, creates: bool) -> Outcome<Documents> {
    if !creates {
        read(home)?;
    }
    let durability = match writing.sync {
        true => Durability::Sync,
        false => Durability::Buffered,
    };
    let options = Options::new().durability(durability);
    let db = store::patiently(home, || options.open(&home.dir))?;
    Ok(Documents::with(db)?)
}

fn names(place: &str) -> Outcome<(&str, &str)> {
    place.split_once('/').ok_or_else(|| {
        Failure::Refused(format!(
            "{place:?} is no DATABASE/CONTAINER: a container has both names"
        ))
    })
}

fn container(documents: &Documents, place: &str) -> Outcome<Container> {
    let (database, id) = names(place)?;
    Ok(documents.container(database, id)?)
}

/// Text as a value: JSON, or else the text itself.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn partition_key(container: &Container, document: &DocumentId) -> Outcome<PartitionKey> {
    let paths = &container.definition().partition_key;
    if document.key.is_empty() && paths.iter().eq(["/id"]) {
        return Ok(PartitionKey::from(document.id.as_str()));
    }
    if document.key.len() != paths.len() {
        return Err(Failure::Refused(format!(
            "the partition key of {} is at {}: give --key VALUE for each",
            document.place.container,
            paths.join(", "),
        )));
    }
    let values: Vec<_> = document.key.iter().map(|text| value(text)).collect();
    Ok(PartitionKey::from_json(&Value::from(values).to_string())?)
}

fn print(document: &Document) -> Outcome {
    Ok(writeln!(stdout().lock(), "{}", document.to_json())?)
}

fn create(made: &MadeContainer, json: bool) -> Outcome {
    let (database, id) = names(&made.place.container)?;
    let mut definition = ContainerDefinition::new(id, &made.key[0]);
    definition.partition_key.clone_from(&made.key);
    definition.default_ttl = given::default_ttl(&made.ttl)?;
    definition.check()?;
    let documents = write(&made.place.home, Writing { sync: false }, true)?;
    match documents.create_database(database) {
        Err(error) if error.kind() != ErrorKind::Conflict => return Err(error.into()),
        _ => {}
    }
    let created = documents.create_container(database, definition)?;
    documents.engine().close()?;
    if json {
        writeln!(stdout().lock(), "{}", created.to_json())?;
    }
    Ok(())
}

fn ttl(place: &DocumentsArgs, default: Option<&str>, json: bool) -> Outcome {
    let Some(default) = default else {
        let default = container(&read(&place.home)?, &place.container)?
            .definition()
            .default_ttl;
        match json {
            true => writeln!(
                stdout().lock(),
                "{}",
                serde_json::json!({ "default_ttl": default })
            )?,
            false => writeln!(stdout().lock(), "{default}")?,
        }
        return Ok(());
    };
    let default = given::default_ttl(default)?;
    let documents = write(&place.home, Writing { sync: false }, false)?;
    let (database, id) = names(&place.container)?;
    let mut definition = (*documents.container(database, id)?.definition()).clone();
    definition.default_ttl = default;
    documents.replace_container(database, definition)?;
    Ok(documents.engine().close()?)
}

fn list(home: &Home, of: Option<&str>) -> Outcome {
    let documents = read(home)?;
    let mut out = stdout().lock();
    match of {
        None => {
            for database in documents.databases()? {
                writeln!(out, "{}", database.to_json())?;
            }
        }
        Some(place) if place.contains('/') => {
            let (container, mut from) = (container(&documents, place)?, None);
            loop {
                let page = container.list(&Scope::everything(), PAGE, from.as_ref())?;
                for document in &page.documents {
                    writeln!(out, "{}", document.to_json())?;
                }
                from = page.continuation;
                if from.is_none() {
                    break;
                }
            }
        }
        Some(database) => {
            documents.database(database)?;
            for container in documents.containers(database)? {
                writeln!(out, "{}", container.to_json())?;
            }
        }
    }
    Ok(out.flush()?)
}

fn put(place: &DocumentsArgs, document: &str, writing: Writing) -> Outcome {
    let documents = write(&place.home, writing, false)?;
    let container = container(&documents, &place.container)?;
    let stored = upsert(&container, document.as_bytes())?;
    documents.engine().close()?;
    print(&stored)
}

fn upsert(container: &Container, document: &[u8]) -> Result<Document, Error> {
    let key = container.partition_key_of(document)?;
    Ok(container.upsert(&key, document, &Conditions::none())?.0)
}

fn import(
    place: &DocumentsArgs,
    file: &Path,
    skip_bad: bool,
    writing: Writing,
    json: bool,
) -> Outcome {
    let mut lines = Lines::open(file)?;
    let documents = write(&place.home, writing, false)?;
    let container = container(&documents, &place.container)?;
    let mut stored = 0;
    while let Some((number, line)) = lines.next()? {
        match upsert(&container, line.trim_ascii()) {
            Ok(_) => stored += 1,
            Err(error) if skip_bad && error.kind() == ErrorKind::BadRequest => {
                lines.skip(number, &error);
            }
            Err(error) => {
                lines.end();
                documents.engine().close()?;
                let before = show::counted(stored, "document");
                return Err(Failure::Refused(format!(
                    "line {number}: {error} ({before} stored)"
                )));
            }
        }
    }
    let bad = lines.end();
    documents.engine().close()?;
    if json {
        let line = serde_json::json!({ "container": place.container, "done": "imported", "documents": stored, "bad": bad });
        writeln!(stdout().lock(), "{line}")?;
    } else {
        failure::note(&format_args!(
            "{} stored",
            show::counted(stored, "document")
        ));
    }
    Ok(())
}

fn delete(document: &DocumentId, writing: Writing) -> Outcome {
    let documents = write(&document.place.home, writing, false)?;
    let container = container(&documents, &document.place.container)?;
    let key = partition_key(&container, document)?;
    container.delete(&key, &document.id, &Conditions::none())?;
    Ok(documents.engine().close()?)
}

fn select(place: &DocumentsArgs, query: &str, parameters: &[String], limit: usize) -> Outcome {
    let container = container(&read(&place.home)?, &place.container)?;
    let parameters = parameters.iter().map(|given| match given.split_once('=') {
        Some((name, text)) if name.starts_with('@') => Ok((name.to_owned(), value(text))),
        _ => Err(Failure::Refused(format!("{given:?} is no @NAME=VALUE"))),
    });
    let parameters: Vec<_> = parameters.collect::<Outcome<_>>()?;
    let (mut out, mut left) = (stdout().lock(), limit);
    let mut from: Option<Continuation> = None;
    while left > 0 {
        let limits = QueryLimits {
            rows: left.min(PAGE),
            time: PATIENCE,
            ..QueryLimits::default()
        };
        let page = container.query(
            query,
            &parameters,
            &Scope::everything(),
            &limits,
            from.as_ref(),
        )?;
        for row in &page.rows {
            writeln!(out, "{row}")?;
        }
        left -= page.rows.len();
        from = page.continuation;
        if from.is_none() {
            break;
        }
    }
    Ok(out.flush()?)
}

fn drop_all(home: &Home, of: &str, yes: bool) -> Outcome {
    let documents = read(home)?;
    let what = match of.contains('/') {
        true => {
            container(&documents, of)?;
            format!("delete {of} with its documents")
        }
        false => {
            let containers = documents.containers(&documents.database(of)?.id)?.len() as u64;
            format!(
                "delete {of} with {}",
                show::counted(containers, "container")
            )
        }
    };
    drop(documents);
    ask::unless(yes, &what)?;
    let documents = write(home, Writing { sync: false }, false)?;
    match of.split_once('/') {
        Some((database, id)) => documents.delete_container(database, id)?,
        None => documents.delete_database(of)?,
    }
    Ok(documents.engine().close()?)
}
