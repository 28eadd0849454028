//! Hosts: each has a network of its own, which a bridge joins to the others', and a disk of its own.
//!
//! ```text
//!   PREFIX-0 10.77.0.1 ──┐
//!   PREFIX-1 10.77.0.2 ──┼── bridge in PREFIX-switch        FOLDER/disk-N, an ext4, is mounted on FOLDER/host-N
//!   PREFIX-2 10.77.0.3 ──┘
//! ```
//!
//! A host knows the others' hardware addresses from the beginning, so that what goes from one to another is lost in this direction
//! alone, without a word to the sender, when it is given an address that nobody has.
//!
//! All names begin with the prefix, and all files are in the folder: tests/real/hosts, which gives both, removes what has them, also
//! where this process was killed.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::{Builder, Handle, Runtime};

const DISK_BYTES: u64 = 400 << 20;
/// Less than a node keeps free.
const LEFT_BYTES: u64 = 16 << 20;
const NOBODY: &str = "02:00:00:00:00:ff";

/// A thing that is broken at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Broken {
    /// Packets to this host are lost.
    Way(usize),
    Plug,
    Speed,
    Stuck,
    Full,
}

pub struct Hosts {
    prefix: String,
    folder: PathBuf,
    /// One thread in each host's network, for its proxy.
    runtimes: Vec<Option<Runtime>>,
    broken: Mutex<BTreeSet<(usize, Broken)>>,
}

/// Runs a command of the system.
fn run(command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    done(Command::new(words[0]).args(&words[1..]));
}

fn done(command: &mut Command) {
    let output = tokio::task::block_in_place(|| command.output());
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

fn hardware(host: usize) -> String {
    format!("02:00:00:00:00:{:02x}", host + 1)
}

impl Hosts {
    pub fn make(prefix: &str, count: usize, folder: &Path) -> Hosts {
        run(&format!("ip netns add {prefix}-switch"));
        run(&format!(
            "ip -n {prefix}-switch link add bridge type bridge"
        ));
        run(&format!("ip -n {prefix}-switch link set bridge up"));
        let mut hosts = Hosts {
            prefix: prefix.to_owned(),
            folder: folder.to_owned(),
            runtimes: vec![],
            broken: Mutex::default(),
        };
        for host in 0..count {
            hosts.plug_in(host);
            let disk = hosts.disk(host);
            File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
            run(&format!("mkfs.ext4 -q -F {}", disk.display()));
            std::fs::create_dir(hosts.mounted(host)).unwrap();
            hosts.mount(host);
            let space = File::open(hosts.space(host)).unwrap();
            let enter = move || {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(space.as_fd(), network).expect("root may");
            };
            let mut runtime = Builder::new_multi_thread();
            runtime
                .worker_threads(1)
                .enable_all()
                .on_thread_start(enter);
            hosts.runtimes.push(Some(runtime.build().unwrap()));
        }
        for from in 0..count {
            (0..count)
                .filter(|&to| to != from)
                .for_each(|to| hosts.way(from, to, &hardware(to)));
        }
        hosts
    }

    fn plug_in(&self, host: usize) {
        let (name, switch) = (self.name(host), format!("{}-switch", self.prefix));
        run(&format!("ip netns add {name}"));
        let own = format!("eth0 address {}", hardware(host));
        run(&format!(
            "ip -n {switch} link add plug-{host} type veth peer name {own} netns {name}"
        ));
        run(&format!(
            "ip -n {switch} link set plug-{host} master bridge up"
        ));
        run(&format!(
            "ip -n {name} addr add {}/24 dev eth0",
            self.ip(host)
        ));
        run(&format!("ip -n {name} link set lo up"));
        run(&format!("ip -n {name} link set eth0 up"));
    }

    fn name(&self, host: usize) -> String {
        format!("{}-{host}", self.prefix)
    }

    pub fn space(&self, host: usize) -> PathBuf {
        Path::new("/run/netns").join(self.name(host))
    }

    pub fn ip(&self, host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// Tasks that are in a host's network.
    pub fn inside(&self, host: usize) -> &Handle {
        self.runtimes[host].as_ref().expect("they run").handle()
    }

    fn disk(&self, host: usize) -> PathBuf {
        self.folder.join(format!("disk-{host}"))
    }

    /// Where a host's disk is.
    pub fn mounted(&self, host: usize) -> PathBuf {
        self.folder.join(format!("host-{host}"))
    }

    fn mount(&self, host: usize) {
        let (disk, on) = (self.disk(host), self.mounted(host));
        run(&format!(
            "mount -o loop {} {}",
            disk.display(),
            on.display()
        ));
    }

    fn way(&self, from: usize, to: usize, hardware: &str) {
        let (name, ip) = (self.name(from), self.ip(to));
        run(&format!(
            "ip -n {name} neigh replace {ip} lladdr {hardware} dev eth0 nud permanent"
        ));
    }

    fn breaks(&self, host: usize, what: Broken) -> bool {
        self.broken.lock().unwrap().insert((host, what))
    }

    /// Packets from one host to another are lost.
    pub fn lose(&self, from: usize, to: usize) {
        if self.breaks(from, Broken::Way(to)) {
            self.way(from, to, NOBODY);
        }
    }

    /// The host has no cable.
    pub fn unplug(&self, host: usize) {
        if self.breaks(host, Broken::Plug) {
            self.plug(host, "down");
        }
    }

    fn plug(&self, host: usize, how: &str) {
        let switch = format!("{}-switch", self.prefix);
        run(&format!("ip -n {switch} link set plug-{host} {how}"));
    }

    /// Packets of a host pass a line of 40 KB/s, which keeps 6 KB waiting and drops the rest.
    pub fn slow(&self, host: usize) {
        if self.breaks(host, Broken::Speed) {
            let line = "root tbf rate 320kbit burst 2000 limit 6000";
            run(&format!(
                "tc -n {} qdisc add dev eth0 {line}",
                self.name(host)
            ));
        }
    }

    /// The disk of a host takes no writes and syncs; who calls it waits.
    pub fn freeze(&self, host: usize) {
        if self.breaks(host, Broken::Stuck) {
            run(&format!("fsfreeze -f {}", self.mounted(host).display()));
        }
    }

    /// Nearly all of the disk is taken.
    pub fn fill(&self, host: usize) {
        let free = rustix::fs::statvfs(self.mounted(host)).unwrap();
        let bytes = (free.f_bavail * free.f_frsize).saturating_sub(LEFT_BYTES);
        if bytes > 0 && self.breaks(host, Broken::Full) {
            let file = self.mounted(host).join("filled");
            run(&format!("fallocate -l {bytes} {}", file.display()));
        }
    }

    /// The disk of a host, whose processes are gone, loses what was not synced.
    pub fn cut_power(&self, host: usize) {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/real");
        let mounted = self.mounted(host);
        let cut_off = r#". "$0/common.sh"; cut_off "$1" 2"#;
        let (cut_off, folder) = (["-c", cut_off], [scripts, mounted.clone()]);
        done(Command::new("bash").args(cut_off).args(folder));
        run(&format!("umount {}", mounted.display()));
        self.mount(host);
    }

    pub fn heal(&self) {
        let broken = std::mem::take(&mut *self.broken.lock().unwrap());
        for (host, what) in broken {
            match what {
                Broken::Way(to) => self.way(host, to, &hardware(to)),
                Broken::Plug => self.plug(host, "up"),
                Broken::Speed => run(&format!(
                    "tc -n {} qdisc del dev eth0 root",
                    self.name(host)
                )),
                Broken::Stuck => run(&format!("fsfreeze -u {}", self.mounted(host).display())),
                Broken::Full => std::fs::remove_file(self.mounted(host).join("filled")).unwrap(),
            }
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let runtimes = self.runtimes.iter_mut().filter_map(Option::take);
        runtimes.for_each(Runtime::shutdown_background);
    }
}
