//! Serves by a configuration file: `cargo run -p ebbtide-server --example serve -- serve.json`.

use std::path::Path;

use ebbtide_server::{Config, ServeError, serve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("A file of the configuration is missing.")?;
    let config = Config::from_file(Path::new(&path))?;
    let served: Result<(), ServeError> = serve(&config, |address| println!("{address}"));
    Ok(served?)
}
