//! A store whose name comes to stand for another address, as after a failover by DNS.
//!
//! The tool runs in a mount namespace of its own, where `/etc/hosts` is a file of the test's.

use std::{fs, process::Command};

use leaseward_testkit::Proxy;
use rustix::process::Signal;

use super::{
    crowd::{AWAY, says},
    on_every_server,
    servers::{Server, Store},
};
use crate::support::{Place, Running, signal};

/// The name by which the tool knows the store.
const HOST: &str = "store.test";

/// A store that is reached through proxies, by name.
struct Named {
    store: Store,
    proxies: Vec<Proxy>,
    place: Place,
}

impl Named {
    fn new(mut store: Store) -> Self {
        let after = |(at, local): (usize, &str)| {
            let port = &store.url[at + local.len()..];
            let digits = port.find(|c: char| !c.is_ascii_digit()).unwrap_or(port.len());
            format!("{local}{}", &port[..digits])
        };
        let addresses: Vec<_> = store.url.match_indices("127.0.0.1:").map(after).collect();
        let proxies: Vec<_> = addresses.iter().map(|address| Proxy::start(address)).collect();
        for (address, proxy) in addresses.iter().zip(&proxies) {
            store.url = store.url.replace(address, &format!("{HOST}:{}", proxy.port()));
        }
        let named = Self { store, proxies, place: Place::new() };
        named.stands_for("127.0.0.1");
        named
    }

    fn stands_for(&self, address: &str) {
        fs::write(self.place.path("hosts"), format!("{address} {HOST}\n")).expect("a file");
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let tool = self.place.tool([&["--store", &self.store.url], arguments].concat());
        let mut command = Command::new("unshare");
        let script = "mount --bind hosts /etc/hosts && exec \"$0\" \"$@\"";
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(tool.get_program()).args(tool.get_args());
        command.current_dir(self.place.path(""));
        for (name, value) in tool.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Running::start(&mut command)
    }

    fn goes_away(&self) {
        for proxy in &self.proxies {
            proxy.refuse();
            proxy.cut();
        }
    }

    fn comes_back_at(&self, address: &str) {
        self.stands_for(address);
        self.proxies.iter().for_each(|proxy| proxy.accept_at(address));
    }
}

/// A waiter goes on at the new address. Its holder may have lost the lease by then, or gives it back there.
fn is_found_again(server: &Server) {
    for named in server.stores().into_iter().map(Named::new) {
        let mut holder =
            named.start(&["run", "x", "--ttl", "3s", "--", "sh", "-c", "echo holds; cat"]);
        assert_eq!(holder.line(), "holds");
        let mut waiter = named.start(&["run", "x", "--wait", "5m", "--", "echo", "got it"]);
        says(&mut waiter, "waiting for");
        named.goes_away();
        says(&mut waiter, AWAY);
        named.comes_back_at("127.0.0.2");
        signal(holder.wrapper(), Signal::TERM);
        holder.end();
        let ran = waiter.end();
        assert_eq!((ran.code, ran.out.as_str()), (0, "got it\n"), "{}", ran.err);
    }
}

#[test]
fn a_store_is_found_at_its_new_address() {
    on_every_server(is_found_again);
}
