//! The pages of two databases side by side.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread};
use sandboxer_core::{Error, Result};

use crate::Value;
use crate::clone::hold_still;
use crate::connection::Connection;

/// How much is compared at a time: both sides fit into a core's own cache.
const CHUNK: usize = 256 << 10;

/// The most threads that compare.
const THREADS: usize = 4;

/// A set of page numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet(Vec<u64>);

impl PageSet {
    pub fn with_room_for(pages: u32) -> Self {
        Self(vec![0; pages as usize / 64 + 1])
    }

    pub fn insert(&mut self, page: u32) {
        if let Some(word) = self.0.get_mut(page as usize / 64) {
            *word |= 1 << (page % 64);
        }
    }

    pub fn remove(&mut self, page: u32) {
        if let Some(word) = self.0.get_mut(page as usize / 64) {
            *word &= !(1 << (page % 64));
        }
    }

    pub fn contains(&self, page: u32) -> bool {
        self.0.get(page as usize / 64).is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let bits = |(index, word): (usize, &u64)| {
            let (index, word) = (index as u32, *word);
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| index * 64 + bit)
        };
        self.0.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(bits)
    }
}

/// Where pages are read.
#[derive(Clone, Copy)]
enum Source<'c> {
    /// In the file: the transaction sees exactly that.
    File(BorrowedFd<'c>),
    /// Through SQLite, for some are in the WAL.
    Transaction(&'c Connection),
}

/// The pages of one database, in one state: a read transaction is open for as long as this is there.
pub(crate) struct Pages<'c> {
    connection: &'c Connection,
    source: Source<'c>,
    pub size: usize,
    pub count: u32,
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        self.connection.rollback();
    }
}

impl<'c> Pages<'c> {
    /// Begins a read transaction.
    pub fn of(connection: &'c Connection) -> Result<Self> {
        let is_file = hold_still(connection)?;
        if connection.is_autocommit() {
            connection.begin_read()?;
        }
        let source = match connection.descriptor() {
            Some(descriptor) if is_file => Source::File(descriptor),
            _ => Source::Transaction(connection),
        };
        let number = |sql| -> Result<u32> { Ok(u32::try_from(connection.integer(sql)?).unwrap_or_default()) };
        let (size, count) = (number("PRAGMA page_size")? as usize, number("PRAGMA page_count")?);
        Ok(Self { connection, source, size, count })
    }

    /// Reads pages from number `first` on; `buffer` is for whole pages.
    pub fn read(&self, first: u32, buffer: &mut [u8]) -> Result<()> {
        match self.source {
            Source::File(descriptor) => {
                let at = u64::from(first.saturating_sub(1)) * self.size as u64;
                read_exact(descriptor, buffer, at)
                    .map_err(|error| Error::io("read", self.connection.path(), error))
            }
            Source::Transaction(connection) => read_through(connection, first, buffer, self.size),
        }
    }

    /// One page.
    pub fn page(&self, number: u32) -> Result<Vec<u8>> {
        let mut page = vec![0; self.size];
        self.read(number, &mut page)?;
        Ok(page)
    }

    fn file(&self) -> Option<BorrowedFd<'c>> {
        if let Source::File(descriptor) = self.source { Some(descriptor) } else { None }
    }
}

fn read_exact(descriptor: BorrowedFd<'_>, mut buffer: &mut [u8], mut at: u64) -> std::io::Result<()> {
    while !buffer.is_empty() {
        match pread(descriptor, &mut *buffer, at) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                buffer = &mut buffer[read..];
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn read_through(connection: &Connection, first: u32, buffer: &mut [u8], size: usize) -> Result<()> {
    let mut statement = connection.prepare("SELECT data FROM sqlite_dbpage('main') WHERE pgno = ?")?;
    for (number, page) in (first..).zip(buffer.chunks_mut(size)) {
        statement.bind(&[Value::Integer(number.into())])?;
        if !statement.step()? || statement.copy_blob(0, page) != page.len() {
            return Err(Error::corrupt(connection.path(), format!("page {number} cannot be read")));
        }
    }
    Ok(())
}

/// The pages that both have and that differ. Both have pages of one size.
pub(crate) fn differing(base: &Pages<'_>, clone: &Pages<'_>) -> Result<PageSet> {
    let common = base.count.min(clone.count);
    let (Some(a), Some(b)) = (base.file(), clone.file()) else {
        return compare(
            1,
            common,
            base.size,
            |first, buffer| base.read(first, buffer),
            |first, buffer| clone.read(first, buffer),
        );
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS) as u32;
    let share = (common / threads + 1).max(4096);
    let failed = |error| Error::io("compare", clone.connection.path(), error);
    let size = base.size;
    let part = |first: u32| {
        let last = (first + share - 1).min(common);
        let read = move |file: BorrowedFd<'_>, first: u32, buffer: &mut [u8]| {
            read_exact(file, buffer, u64::from(first - 1) * size as u64)
        };
        compare(first, last, size, |n, buffer| read(a, n, buffer), |n, buffer| read(b, n, buffer))
    };
    let sets = std::thread::scope(|scope| {
        let starts = (0..threads).map(|thread| 1 + thread * share).filter(|first| *first <= common);
        let parts: Vec<_> = starts.map(|first| scope.spawn(move || part(first))).collect();
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or(Err(std::io::ErrorKind::Other.into())))
            .collect::<Vec<_>>()
    });
    let mut all = PageSet::with_room_for(common);
    for set in sets {
        for (word, bits) in all.0.iter_mut().zip(set.map_err(failed)?.0) {
            *word |= bits;
        }
    }
    Ok(all)
}

fn compare<E>(
    first: u32,
    last: u32,
    size: usize,
    base: impl Fn(u32, &mut [u8]) -> Result<(), E>,
    clone: impl Fn(u32, &mut [u8]) -> Result<(), E>,
) -> Result<PageSet, E> {
    let mut set = PageSet::with_room_for(last);
    let at_once = (CHUNK / size).max(1) as u32;
    let (mut old, mut new) = (vec![0; at_once as usize * size], vec![0; at_once as usize * size]);
    let mut at = first;
    while at <= last {
        let pages = at_once.min(last - at + 1);
        let length = pages as usize * size;
        base(at, &mut old[..length])?;
        clone(at, &mut new[..length])?;
        if old[..length] != new[..length] {
            let pairs = old[..length].chunks(size).zip(new[..length].chunks(size));
            (at..).zip(pairs).filter(|(_, (old, new))| old != new).for_each(|(page, _)| set.insert(page));
        }
        at += pages;
    }
    Ok(set)
}
