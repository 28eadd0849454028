//! `ebbtide cluster`: the members of a cluster, asked of one of its nodes by the control socket in its folder.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use ebbtide_control::{Answer, ClusterStatus, Request, Secret};
use serde_json::json;

use crate::arguments::ClusterAction;
use crate::failure::{self, Failure, Outcome};
use crate::{show, table};

pub fn run(action: &ClusterAction, json: bool) -> Outcome {
    match action {
        ClusterAction::Status { dir } => status(dir, json),
        ClusterAction::Add { dir } => add(dir, json),
        ClusterAction::Token { dir, lasts } => token(dir, *lasts, json),
        ClusterAction::Remove { dir, member } => {
            let member = member.clone();
            ask(dir, &Request::ClusterRemove { member })?;
            done("removed", json)
        }
        ClusterAction::Leader { dir, member: None } => leader(dir, json),
        ClusterAction::Leader {
            dir,
            member: Some(member),
        } => {
            let member = member.clone();
            ask(dir, &Request::ClusterLead { member })?;
            done("it leads", json)
        }
    }
}

fn ask(dir: &Path, request: &Request) -> Outcome<Answer> {
    let connected = ebbtide_control::connect(dir);
    let connected = connected.map_err(|error| Failure::file("ask the node of", dir, &error))?;
    let client = connected.ok_or_else(|| {
        let dir = dir.display();
        Failure::Refused(format!(
            "no node of {dir} runs and listens: `ebbtide serve {dir} --cluster ADDRESS:PORT` starts one"
        ))
    })?;
    Ok(client.ask(request, &mut |_| ())?)
}

/// The answer to one of the requests that tell the members.
pub fn asked(dir: &Path, request: &Request) -> Outcome<ClusterStatus> {
    match ask(dir, request)? {
        Answer::Cluster(status) => Ok(status),
        _ => Err(other_answer()),
    }
}

fn token(dir: &Path, lasts: Duration, json: bool) -> Outcome {
    let seconds = lasts.as_secs();
    let Answer::Token(Secret(token)) = ask(dir, &Request::ClusterToken { seconds })? else {
        return Err(other_answer());
    };
    let text = match json {
        true => json!({ "token": token }).to_string(),
        false => token,
    };
    Ok(writeln!(stdout().lock(), "{text}")?)
}

fn other_answer() -> Failure {
    Failure::Refused("the node gave the answer to another question".to_owned())
}

fn status(dir: &Path, json: bool) -> Outcome {
    let status = asked(dir, &Request::ClusterStatus)?;
    let text = match json {
        true => status.json().to_string() + "\n",
        false => rows(&status),
    };
    Ok(stdout().lock().write_all(text.as_bytes())?)
}

fn rows(status: &ClusterStatus) -> String {
    let number = |number: Option<u64>| number.map_or("-".to_owned(), show::count);
    let rows: Vec<Vec<String>> = status
        .members
        .iter()
        .map(|member| {
            vec![
                member.id.to_string(),
                member.addr.clone(),
                member.role().to_owned(),
                number(member.applied),
                number(status.lag(member)),
                member
                    .speaks
                    .map_or("-".to_owned(), |format| format.to_string()),
                member.trouble.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    let header = [
        "ID", "ADDRESS", "ROLE", "APPLIED", "LAG", "SPEAKS", "TROUBLE",
    ];
    let format = match status.format {
        0 => String::new(),
        format => format!("The log is of format {format}.\n"),
    };
    table::whole(&header, &rows) + &format
}

fn add(dir: &Path, json: bool) -> Outcome {
    let status = asked(dir, &Request::ClusterStatus)?;
    // One that answers is one that can be joined.
    let mut members = status.members.iter();
    let contact = members.find(|member| member.id == status.node);
    let contact = contact.ok_or_else(|| {
        Failure::Refused("the node is no member any more: ask another one".to_owned())
    })?;
    let (join, by_token) = (&contact.addr, status.joins_by_token);
    // The new member asks others for a token, too.
    let token = match by_token {
        true => " --join-by-token --token-file FILE",
        false => "",
    };
    let text = match json {
        true => {
            json!({ "cluster": status.cluster, "join": join, "by_token": by_token }).to_string()
        }
        false => format!("ebbtide serve NEW_DIR --cluster ADDRESS:PORT --join {join}{token}"),
    };
    Ok(writeln!(stdout().lock(), "{text}")?)
}

fn leader(dir: &Path, json: bool) -> Outcome {
    let status = asked(dir, &Request::ClusterStatus)?;
    let leader = status.members.iter().find(|member| member.leads);
    let leader = leader.ok_or_else(|| {
        Failure::NotFound(
            "no member leads: a majority is not there, or an election goes on".to_owned(),
        )
    })?;
    let text = match json {
        true => json!({ "id": leader.id.to_string(), "address": leader.addr }).to_string(),
        false => format!("{}\t{}", leader.id, leader.addr),
    };
    Ok(writeln!(stdout().lock(), "{text}")?)
}

fn done(what: &str, json: bool) -> Outcome {
    match json {
        true => writeln!(stdout().lock(), "{}", json!({ "done": true }))?,
        false => failure::note(&what),
    }
    Ok(())
}
