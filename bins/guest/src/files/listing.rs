//! A listing as it goes over the wire.
//!
//! Entries are written into the answer one by one as they are found, because a hundred thousand
//! of them as messages take five times the room. All answers that are being made or sent share
//! one budget: a client that asks for many and reads none gets a refusal, not the guest's memory.

use bytes::Bytes;
use connectrpc::{CodecFormat, ConnectError, Encodable, PreEncoded};
use guest_proto::filesystem::{EntryInfo, ListDirResponse};
use http::HeaderMap;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::{FileError, FileErrorKind};
use buffa::Message as _;

/// The unit of the budget.
const PLACE: usize = 1 << 20;

/// The most bytes of one answer: 200,000 files with common names, as JSON.
pub(crate) const LARGEST: usize = 48 << 20;

/// What all answers may take together. The guest as a whole has 256 MiB.
static PLACES: Semaphore = Semaphore::const_new(96);

const BEGIN: &[u8] = b"{\"entries\":[";
const END: &[u8] = b"]}";

/// The entries that were found, in the form that the client asked for.
#[derive(Debug)]
pub(crate) struct Listing {
    form: CodecFormat,
    bytes: Vec<u8>,
    places: Option<SemaphorePermit<'static>>,
}

impl Listing {
    /// An empty listing for a request with these headers.
    pub(crate) fn new(headers: &HeaderMap) -> Self {
        let kind = headers.get(http::header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        let is_json = kind
            .is_some_and(|kind| kind.ends_with(b"json") || kind.starts_with(b"application/json;"));
        let form = if is_json { CodecFormat::Json } else { CodecFormat::Proto };
        Self { form, bytes: if is_json { BEGIN.to_vec() } else { Vec::new() }, places: None }
    }

    /// Adds an entry; says no when it does not fit any more.
    pub(crate) fn add(&mut self, entry: &EntryInfo) -> Result<(), FileError> {
        if self.form == CodecFormat::Json {
            if self.bytes.len() > BEGIN.len() {
                self.bytes.push(b',');
            }
            serde_json::to_writer(&mut self.bytes, entry).map_err(|error| {
                FileError::new(FileErrorKind::Internal, format!("no entry: {error}"))
            })?;
        } else {
            // Field 1, which is a message: so a list is its entries one after the other.
            self.bytes.push(1 << 3 | 2);
            entry.encode_length_delimited(&mut self.bytes);
        }
        if self.bytes.len() > LARGEST {
            return Err(FileError::in_the_way(format!(
                "the listing takes more than {} MiB; list parts of it, or use a command such as find",
                LARGEST >> 20
            )));
        }
        self.take_places()
    }

    fn take_places(&mut self) -> Result<(), FileError> {
        let had = self.places.as_ref().map_or(0, SemaphorePermit::num_permits);
        let wanted = self.bytes.capacity().div_ceil(PLACE);
        let Some(more) = wanted.checked_sub(had).filter(|more| *more > 0) else { return Ok(()) };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let taken = PLACES.try_acquire_many(more).map_err(|_| {
            FileError::in_the_way(
                "other large listings are being made or read; try again when they are done",
            )
        })?;
        match &mut self.places {
            Some(places) => places.merge(taken),
            None => self.places = Some(taken),
        }
        Ok(())
    }

    /// Ends the listing.
    pub(crate) fn finish(mut self) -> Finished {
        if self.form == CodecFormat::Json {
            self.bytes.extend_from_slice(END);
        }
        Finished { form: self.form, bytes: Bytes::from_owner(Held(self)) }
    }
}

/// Holds the places until the last byte was sent.
struct Held(Listing);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// A whole listing.
#[derive(Debug)]
pub(crate) struct Finished {
    form: CodecFormat,
    bytes: Bytes,
}

impl Encodable<ListDirResponse> for Finished {
    fn encode(&self, codec: CodecFormat) -> Result<Bytes, ConnectError> {
        match (self.form, codec) {
            (CodecFormat::Json, CodecFormat::Proto) => {
                Err(ConnectError::internal("the form of the answer was not told"))
            }
            (CodecFormat::Proto, CodecFormat::Json) => {
                PreEncoded::<ListDirResponse>::from_bytes_unchecked(self.bytes.clone())
                    .encode(codec)
            }
            _ => Ok(self.bytes.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(kind: &'static str) -> HeaderMap {
        let kind = http::HeaderValue::from_static(kind);
        HeaderMap::from_iter([(http::header::CONTENT_TYPE, kind)])
    }

    #[test]
    fn entries_one_by_one_are_the_same_message() {
        let entries = ["a", "b", "\"\u{2028}"].map(|name| EntryInfo {
            name: name.to_owned(),
            size: 5,
            symlink_target: Some("x".repeat(300)),
            ..EntryInfo::default()
        });
        for count in 0..=entries.len() {
            let entries = entries[..count].to_vec();
            for (kind, codec) in
                [("application/json", CodecFormat::Json), ("application/proto", CodecFormat::Proto)]
            {
                let mut listing = Listing::new(&headers(kind));
                for entry in &entries {
                    listing.add(entry).unwrap();
                }
                let whole =
                    ListDirResponse { entries: entries.clone(), ..ListDirResponse::default() };
                let one_by_one = listing.finish();
                if codec == CodecFormat::Json {
                    let read = |bytes: &[u8]| -> ListDirResponse {
                        serde_json::from_slice(bytes).unwrap()
                    };
                    assert_eq!(read(&one_by_one.encode(codec).unwrap()), whole);
                } else {
                    assert_eq!(one_by_one.encode(codec).unwrap(), whole.encode_to_bytes());
                    assert_eq!(
                        one_by_one.encode(CodecFormat::Json).unwrap(),
                        Encodable::<ListDirResponse>::encode(&whole, CodecFormat::Json).unwrap()
                    );
                }
            }
        }
    }

    #[test]
    fn a_listing_that_is_too_large_is_refused_and_gives_its_places_back() {
        let entry = EntryInfo { name: "n".repeat(1 << 20), ..EntryInfo::default() };
        for _ in 0..3 {
            let mut listing = Listing::new(&headers("application/proto"));
            let refused =
                std::iter::repeat_with(|| listing.add(&entry)).take(60).find_map(Result::err);
            assert!(refused.unwrap().message.contains("48 MiB"));
        }
    }
}
