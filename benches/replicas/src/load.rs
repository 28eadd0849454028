//! Loads: clients that ask one thing after the other, and what they have seen.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Result;
use crate::clients::{Client, LIFE_S};
use crate::systems::{Running, processor_seconds};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Put,
    PutWithLife,
    Read,
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub kind: Kind,
    pub clients: usize,
    pub time: Duration,
    /// Keys are drawn from so many.
    pub keys: u64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub a_second: f64,
    pub median_us: f64,
    pub p99_us: f64,
    /// Of the servers for each operation, and of the clients, in microseconds of processor time.
    pub server_us: f64,
    pub client_us: f64,
}

pub const VALUE: [u8; 100] = [b'v'; 100];

pub async fn run(running: &Running, load: Load) -> Result<Figures> {
    let mut open = vec![];
    for _ in 0..load.clients {
        open.push(Client::open(running.system, running.leader).await?);
    }
    let own = || processor_seconds(std::process::id());
    let before = (running.processor_seconds()?, own()?);
    let begun = Instant::now();
    let tasks = open.into_iter().zip(1..);
    let tasks = tasks.map(|(client, n)| tokio::spawn(play(client, n, load, begun)));
    let mut times = vec![];
    for task in tasks.collect::<Vec<_>>() {
        times.extend(task.await??);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = (running.processor_seconds()?, own()?);
    Ok(figures(
        times,
        seconds,
        after.0 - before.0,
        after.1 - before.1,
    ))
}

fn figures(mut times: Vec<u32>, seconds: f64, server: f64, client: f64) -> Figures {
    times.sort_unstable();
    let at = |part: f64| {
        times
            .get((times.len() as f64 * part) as usize)
            .copied()
            .unwrap_or(0)
    };
    let count = times.len().max(1) as f64;
    Figures {
        a_second: times.len() as f64 / seconds,
        median_us: at(0.5).into(),
        p99_us: at(0.99).into(),
        server_us: server * 1e6 / count,
        client_us: client * 1e6 / count,
    }
}

/// Asks until the time is over: how long each took, in microseconds.
async fn play(mut client: Client, n: u64, load: Load, begun: Instant) -> Result<Vec<u32>> {
    let mut random = Random(n);
    let mut times = vec![];
    while begun.elapsed() < load.time {
        let (key, asked) = (random.next() % load.keys, Instant::now());
        match load.kind {
            Kind::Put => client.put(key, &VALUE, 0).await?,
            Kind::PutWithLife => client.put(key, &VALUE, LIFE_S * 1_000).await?,
            Kind::Read => drop(client.get(key).await?),
        }
        times.push(asked.elapsed().as_micros() as u32);
    }
    Ok(times)
}

/// G. Marsaglia, xorshift.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Puts items that end within a window which begins after `lead`.
pub async fn fill(running: &Running, items: u64, lead: Duration, window: Duration) -> Result<()> {
    let begun = Instant::now();
    let ends = Arc::new(move |n: u64| {
        let end = lead + window.mul_f64(n as f64 / items as f64);
        end.saturating_sub(begun.elapsed()).as_millis().max(1) as u64
    });
    let clients = 16;
    let tasks = (0..clients).map(|client| {
        let (system, leader, ends) = (running.system, running.leader, ends.clone());
        tokio::spawn(async move {
            let mut connection = Client::open(system, leader).await?;
            let own: Vec<u64> = (client..items).step_by(clients as usize).collect();
            for part in own.chunks(200) {
                // Keys of their own.
                let part: Vec<(u64, u64)> =
                    part.iter().map(|n| ((1 << 40) | n, ends(*n))).collect();
                connection.put_many(&part, &VALUE).await?;
            }
            Result::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}
