//! Finds the tests that ship inside the crate tower-sessions for tests/shipped.rs, which runs them as they are. This script
//! is in the repository alone, and no part of the package.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    // Only the program of these tests may fail for want of them.
    let code = match tests() {
        Ok(path) => {
            println!("cargo::rerun-if-changed={}", path.display());
            format!("#[macro_use]\n#[path = {path:?}]\nmod common;\n")
        }
        Err(why) => {
            let message = format!("the tests of the crate tower-sessions were not found: {why}");
            format!("compile_error!({message:?});\n")
        }
    };
    let folder = env::var_os("OUT_DIR").expect("cargo names a folder");
    fs::write(Path::new(&folder).join("shipped.rs"), code).expect("cargo's folder takes a file");
}

/// The file of the tests, where cargo has the sources of the version that is locked.
fn tests() -> Result<PathBuf, String> {
    let variable = |name| env::var_os(name).ok_or_else(|| format!("{name} is not set"));
    let asked = Command::new(variable("CARGO")?)
        .args(["metadata", "--locked", "--format-version=1"])
        .arg("--filter-platform")
        .arg(variable("TARGET")?)
        .output()
        .map_err(|error| format!("cargo metadata does not run: {error}"))?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr);
        return Err(format!("cargo metadata failed: {said}"));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&asked.stdout).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut manifests = packages
        .filter(|package| package["name"] == "tower-sessions")
        .filter_map(|package| package["manifest_path"].as_str());
    let manifest = manifests.next().ok_or("cargo metadata does not name it")?;
    let tests = Path::new(manifest).with_file_name("tests/common/mod.rs");
    match tests.is_file() {
        true => Ok(tests),
        false => Err(format!("there is no file {}", tests.display())),
    }
}
