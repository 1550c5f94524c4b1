//! The addresses that names have inside one sandbox.
//!
//! A name that may be reached gets an address of 198.18.0.0/15, which is nobody's in the world. A
//! connection to it is one to that name, whatever the name's own addresses are by then. Where a
//! name lies follows from its letters, so that it is most often found at the same place again
//! after a restart.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::time::Instant;

use crate::attach::FIRST_OF_NAMES;

/// Where a sandbox's resolver answers.
pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// So many names has a sandbox at a time; the one that was not used for longest makes room.
const MOST: usize = 2048;
/// The end of 198.18.0.0/15.
const LAST: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 255);

/// Which name has which address.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<String, u32>,
    by_address: HashMap<u32, Given>,
}

#[derive(Debug)]
struct Given {
    name: String,
    used: Instant,
}

impl Names {
    /// The address of a name, which it gets now if it has none.
    pub(crate) fn give(&mut self, name: &str) -> Ipv4Addr {
        if let Some(&place) = self.by_name.get(name) {
            if let Some(given) = self.by_address.get_mut(&place) {
                given.used = Instant::now();
            }
            return address_at(place);
        }
        if self.by_address.len() >= MOST {
            self.forget_oldest();
        }
        let mut place = first_place(name);
        while self.by_address.contains_key(&place) {
            place = (place + 1) % places();
        }
        self.by_name.insert(name.to_owned(), place);
        self.by_address.insert(place, Given { name: name.to_owned(), used: Instant::now() });
        address_at(place)
    }

    /// The name that has an address.
    pub(crate) fn find(&mut self, address: Ipv4Addr) -> Option<String> {
        let place = address.to_bits().checked_sub(Ipv4Addr::from(FIRST_OF_NAMES).to_bits())?;
        let given = self.by_address.get_mut(&place)?;
        given.used = Instant::now();
        Some(given.name.clone())
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_address.iter().min_by_key(|(_, given)| given.used);
        let Some(place) = oldest.map(|(place, _)| *place) else { return };
        if let Some(given) = self.by_address.remove(&place) {
            self.by_name.remove(&given.name);
        }
    }
}

/// Whether an address is one that names get.
pub(crate) fn is_of_names(address: Ipv4Addr) -> bool {
    (Ipv4Addr::from(FIRST_OF_NAMES)..=LAST).contains(&address)
}

fn places() -> u32 {
    LAST.to_bits() - Ipv4Addr::from(FIRST_OF_NAMES).to_bits()
}

fn first_place(name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    u32::try_from(hasher.finish() % u64::from(places())).unwrap_or(0)
}

fn address_at(place: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::from(FIRST_OF_NAMES).to_bits() + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_is_found_by_it() {
        let mut names = Names::default();
        let first = names.give("a.example");
        assert!(is_of_names(first));
        assert_ne!(names.give("b.example"), first);
        assert_eq!(names.give("a.example"), first);
        assert_eq!(names.find(first).as_deref(), Some("a.example"));
        assert_eq!(Names::default().give("a.example"), first, "and so after a restart");
        assert_eq!(names.find(Ipv4Addr::new(198, 18, 0, 2)), None);
        assert_eq!(names.find(Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn a_flood_of_names_takes_bounded_room() {
        let mut names = Names::default();
        for number in 0..MOST * 2 {
            names.give(&format!("n{number}.example"));
            names.give("kept.example");
        }
        assert_eq!(names.by_name.len(), MOST);
        assert_eq!(names.by_address.len(), MOST);
        assert!(names.by_name.contains_key("kept.example"));
    }
}
