//! The arguments of the commands on documents.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Home, Writing};

#[derive(Subcommand)]
pub enum DocumentAction {
    /// Make a container of documents, and its database where it is missing
    Create(MadeContainer),
    /// List databases, the containers of one, or the documents of a container
    ///
    /// A document a line, with its system properties.
    List {
        #[command(flatten)]
        home: Home,
        /// A database, or DATABASE/CONTAINER; without it, all databases
        #[arg(value_name = "DATABASE[/CONTAINER]")]
        of: Option<String>,
    },
    /// Store a document, whether or not there is one with its id
    ///
    /// Prints it with its system properties. "ttl", its lifetime, is -1 or 1 to 2147483647 seconds.
    Put {
        #[command(flatten)]
        place: DocumentsArgs,
        /// A JSON object with an "id" of text
        #[arg(value_name = "DOCUMENT")]
        document: String,
        #[command(flatten)]
        writing: Writing,
    },
    /// Store a document for each line of a file, a JSON object
    ///
    /// A bad line is named by its number and ends the import; the lines before it are stored. System properties (`_ts`,
    /// `_etag`, ..) are left out: each line is written now.
    Import {
        #[command(flatten)]
        place: DocumentsArgs,
        /// The file, plain or compressed by gzip; - for standard input
        #[arg(value_name = "FILE.jsonl|-")]
        file: PathBuf,
        /// Name the first twenty bad lines, and go on
        #[arg(long)]
        skip_bad: bool,
        #[command(flatten)]
        writing: Writing,
    },
    /// Show or set the default ttl of a container of documents
    ///
    /// A change counts at once for every document, whenever it was written; what is expired already stays gone.
    Ttl {
        #[command(flatten)]
        place: DocumentsArgs,
        /// off, -1 or a lifetime, as for `create`
        #[arg(value_name = "off|-1|TIME", allow_negative_numbers = true)]
        default: Option<String>,
    },
    /// Print a document with its system properties
    Get(DocumentId),
    /// Delete a document
    Delete {
        #[command(flatten)]
        document: DocumentId,
        #[command(flatten)]
        writing: Writing,
    },
    /// Print what a query selects, a row a line
    ///
    /// In the language of Azure Cosmos DB: SELECT .. FROM c WHERE .. ORDER BY ..
    Query {
        #[command(flatten)]
        place: DocumentsArgs,
        /// The query
        #[arg(value_name = "QUERY")]
        query: String,
        /// The value of a parameter of the query: JSON, or else text
        #[arg(long = "with", value_name = "@NAME=VALUE")]
        parameters: Vec<String>,
        /// At most so many rows
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Delete a container with its documents, or a database with its containers
    ///
    /// Asks first, unless --yes is given.
    Drop {
        #[command(flatten)]
        home: Home,
        /// A database, or DATABASE/CONTAINER
        #[arg(value_name = "DATABASE[/CONTAINER]")]
        of: String,
        /// Do not ask; needed where there is no terminal to ask on
        #[arg(long)]
        yes: bool,
    },
}

/// A container of documents.
#[derive(Args)]
pub struct DocumentsArgs {
    #[command(flatten)]
    pub home: Home,
    /// A container of documents in its database
    #[arg(value_name = "DATABASE/CONTAINER")]
    pub container: String,
}

#[derive(Args)]
pub struct DocumentId {
    #[command(flatten)]
    pub place: DocumentsArgs,
    /// Its id
    pub id: String,
    /// The value of its partition key, one for each path: JSON, or else text; needed where the path is not /id
    #[arg(long, value_name = "VALUE")]
    pub key: Vec<String>,
}

#[derive(Args)]
pub struct MadeContainer {
    #[command(flatten)]
    pub place: DocumentsArgs,
    /// The path of the partition key, such as /user; up to three
    #[arg(long, value_name = "PATH", default_value = "/id")]
    pub key: Vec<String>,
    /// off: nothing expires; -1: only documents with a ttl of their own do; or a lifetime (90, 30m, 7d, 1h30m)
    #[arg(
        long,
        value_name = "off|-1|TIME",
        default_value = "off",
        allow_hyphen_values = true
    )]
    pub ttl: String,
}
