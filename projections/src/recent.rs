//! A map that keeps its newest entries: what makes a fold's state bounded by definition, for every reader alike.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A map of at most `MAX` entries: inserting one more forgets the one that was inserted longest ago. Inserting a key anew
/// makes it the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent<K: Ord, V, const MAX: usize> {
    entries: BTreeMap<K, (u64, V)>,
    /// The keys by when they were inserted.
    order: BTreeMap<u64, K>,
    inserted: u64,
}

impl<K: Ord, V, const MAX: usize> Default for Recent<K, V, MAX> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), inserted: 0 }
    }
}

impl<K: Ord + Clone, V, const MAX: usize> Recent<K, V, MAX> {
    /// The value of a key, while it is remembered.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Remembers a value, and gives the one that its key had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.remove(&key);
        self.inserted = self.inserted.saturating_add(1);
        self.order.insert(self.inserted, key.clone());
        self.entries.insert(key, (self.inserted, value));
        if self.entries.len() > MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        before
    }

    /// Forgets a key, and gives its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (inserted, value) = self.entries.remove(key)?;
        self.order.remove(&inserted);
        Some(value)
    }

    /// The keys that are remembered, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    /// What is remembered, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (_, value))| (key, value))
    }

    /// The values that are remembered, by key.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|(_, value)| value)
    }

    /// How many entries are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut recent = Recent::<u8, u8, 3>::default();
        for key in 0..3 {
            assert_eq!(recent.insert(key, key), None);
        }
        assert_eq!(recent.insert(0, 9), Some(0), "0 is the newest now");
        recent.insert(3, 3);
        assert_eq!((recent.get(&1), recent.get(&0), recent.len()), (None, Some(&9), 3));
        assert_eq!(recent.remove(&2), Some(2));
        recent.insert(4, 4);
        recent.insert(5, 5);
        assert_eq!((recent.get(&0), recent.get(&3)), (None, Some(&3)));
        assert!(!recent.is_empty());
    }
}
