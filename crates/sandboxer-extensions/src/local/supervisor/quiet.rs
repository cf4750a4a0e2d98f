//! Everything stands still for whoever compares or commits, and goes on when nobody does any more.
//!
//! Init may be frozen with the rest. Nothing is said to it meanwhile: what it is to do is held back, and what is held back for a client that
//! has gone is never done.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::clients::Serving;
use crate::local::refusal::Refusal;
use crate::local::wire::{Order, Reply, send};

impl Serving {
    /// Whether everything stands still, or is about to.
    pub(super) fn is_frozen(&self) -> bool {
        self.clients.iter().any(|client| client.froze)
    }

    /// Tells init, now or when it can hear.
    pub(super) fn order(&mut self, order: Order, along: Vec<OwnedFd>) -> io::Result<()> {
        if self.is_frozen() {
            self.held_back.push((order, along));
            return Ok(());
        }
        let along: Vec<_> = along.iter().map(AsFd::as_fd).collect();
        send(&self.runtime.init.socket, &order, &along)
    }

    /// Stops everything for a client, which is answered when that is so.
    pub(super) fn freeze(&mut self, at: usize) -> io::Result<()> {
        let others = self.is_frozen();
        self.clients[at].froze = true;
        let group = &self.runtime.group;
        if !group.can_freeze() {
            // Init answers everybody who waits when everything stands still.
            return send(&self.runtime.init.socket, &Order::Stop, &[]);
        }
        match if others { Ok(()) } else { group.freeze() } {
            Ok(()) => self.say(at, &Reply::Done),
            Err(error) => {
                self.clients[at].froze = false;
                self.say(at, &Reply::Refused(error.into()))
            }
        }
    }

    /// Init has stopped everything, or could not.
    pub(super) fn hear_stopped(&mut self, still: bool) {
        for at in 0..self.clients.len() {
            if !self.clients[at].froze {
                continue;
            }
            let reply = match still {
                true => Reply::Done,
                false => Reply::Refused(Refusal::new("hold still what runs", "some of it goes on running")),
            };
            self.clients[at].gone |= self.say(at, &reply).is_err();
        }
        if !still {
            self.clients.iter_mut().for_each(|client| client.froze = false);
            self.go_on();
        }
    }

    /// A client needs quiet no longer.
    pub(super) fn thaw(&mut self, at: usize) {
        self.clients[at].froze = false;
        if !self.is_frozen() {
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        match &self.runtime.group {
            group if group.can_freeze() => drop(group.thaw()),
            _ => drop(send(&self.runtime.init.socket, &Order::Continue, &[])),
        }
        for (order, along) in std::mem::take(&mut self.held_back) {
            let is_wanted = match &order {
                Order::Spawn { id, .. } => self.clients.iter().any(|client| client.runs(*id) && !client.gone),
                _ => true,
            };
            if is_wanted {
                let _ = self.order(order, along);
            }
        }
    }
}
