//! Three nodes on one machine: a cart is the same whoever is asked, also when the node that leads is lost, and is gone for all in
//! the same millisecond.
//!
//! ```sh
//! cargo run --package ebbtide-cluster --example three_nodes
//! ```

use std::time::Duration;

use ebbtide_cluster::{Error, Node, ReadLevel};

async fn run(folder: &std::path::Path) -> Result<Vec<String>, Error> {
    let first = Node::open(folder.join("1")).await?; // a cluster of one
    let mut nodes = vec![first.clone()];
    for name in ["2", "3"] {
        let joining = Node::options().join(first.addr());
        nodes.push(joining.open(folder.join(name)).await?);
    }

    let carts = nodes[1].create_container("carts").await?;
    let five_seconds = Duration::from_secs(5);
    let written = carts.put_with_ttl("ada", "3 apples", five_seconds).await?;
    let cart = nodes[2].container("carts");
    let mut told = vec![format!("node 3 has {:?}", cart.get("ada").await?.value)];
    let near = cart.at(ReadLevel::Local).since(written.token);
    told.push(format!("and by itself {:?}", near.get("ada").await?.value));

    first.close().await?; // it leads: another node will
    carts.put("bob", "a pear").await?;
    told.push(format!(
        "two nodes have {} carts",
        cart.count(..).await?.value
    ));

    let end = written.at + five_seconds;
    loop {
        let got = cart.get("ada").await?;
        if got.value.is_none() {
            told.push(format!("ada's cart is gone at its end: {}", got.at >= end));
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for node in &nodes[1..] {
        node.close().await?;
    }
    Ok(told)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let told = run(folder.path()).await?;
    told.iter().for_each(|line| println!("{line}"));
    Ok(())
}
