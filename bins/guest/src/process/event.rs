//! What happens to a process, and how it looks on the wire.

use bytes::{BufMut as _, Bytes, BytesMut};
use connectrpc::{CodecFormat, ConnectError, Encodable, EncodedBody};
use guest_proto::process::__buffa::oneof::process_event::Event as EventKind;
use guest_proto::process::__buffa::oneof::process_event::data_event::Output;
use guest_proto::process::process_event::{
    DataEvent, DroppedEvent, EndEvent, KeepAlive, StartEvent,
};
use guest_proto::process::{ConnectResponse, ProcessEvent, StartResponse};

use super::ending::Ending;

/// The number of `DataEvent.offset`.
const OFFSET_FIELD: u64 = 100;

/// Something that happened to a process.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// It runs, and its events begin at this offset in its output.
    Start { pid: u32, offset: u64 },
    /// It wrote something, at an offset; or, without one, its screen is drawn anew.
    Output { channel: Channel, offset: Option<u64>, bytes: Bytes },
    /// The output between two offsets is no longer there.
    Dropped { from: u64, to: u64 },
    /// It has ended, and its output may go on.
    Exited(Ending),
    /// It is over.
    End(Ending),
    /// Nothing, for a while.
    KeepAlive,
}

/// Where a process wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
    Terminal,
}

impl Event {
    fn message(&self) -> ProcessEvent {
        let event = match self {
            Self::Start { pid, offset } => {
                let offset = Some(*offset);
                EventKind::from(StartEvent { pid: *pid, offset, ..StartEvent::default() })
            }
            Self::Output { channel, offset, bytes } => {
                let bytes = bytes.to_vec();
                let output = match channel {
                    Channel::Stdout => Output::Stdout(bytes),
                    Channel::Stderr => Output::Stderr(bytes),
                    Channel::Terminal => Output::Pty(bytes),
                };
                let (output, offset) = (Some(output), *offset);
                EventKind::from(DataEvent { output, offset, ..DataEvent::default() })
            }
            Self::Dropped { from, to } => {
                let (from, to) = (*from, *to);
                EventKind::from(DroppedEvent { from, to, ..DroppedEvent::default() })
            }
            Self::Exited(ending) => EventKind::Exited(Box::new(EndEvent::from(*ending))),
            Self::End(ending) => EventKind::End(Box::new(EndEvent::from(*ending))),
            Self::KeepAlive => EventKind::from(KeepAlive::default()),
        };
        ProcessEvent { event: Some(event), ..ProcessEvent::default() }
    }

    /// Output in protobuf's binary form: a few bytes of ours and the bytes as they were read, so
    /// that a gigabyte of output is not copied once more.
    fn output_segments(channel: Channel, offset: Option<u64>, bytes: &Bytes) -> Vec<Bytes> {
        let field = match channel {
            Channel::Stdout => 1,
            Channel::Stderr => 2,
            Channel::Terminal => 3,
        };
        // Inside out: the bytes and their offset in a DataEvent, as `data` of a ProcessEvent, as
        // `event` of a response.
        let mut tail = BytesMut::new();
        if let Some(offset) = offset {
            put_number(&mut tail, OFFSET_FIELD << 3);
            put_number(&mut tail, offset);
        }
        let in_data = head(field, bytes.len());
        let inner = in_data.len() + bytes.len() + tail.len();
        let in_event = head(2, inner);
        let in_response = head(1, in_event.len() + inner);
        let head = [in_response, in_event, in_data].concat();
        vec![Bytes::from(head), bytes.clone(), tail.freeze()]
    }
}

// Both responses hold an event as field 1 and nothing else, so they look the same.
macro_rules! encode_as {
    ($response:ident) => {
        impl Encodable<$response> for Event {
            fn encode(&self, codec: CodecFormat) -> Result<Bytes, ConnectError> {
                let event = self.message().into();
                $response { event, ..$response::default() }.encode(codec)
            }

            fn encode_segments(&self, codec: CodecFormat) -> Result<EncodedBody, ConnectError> {
                match (self, codec) {
                    (Self::Output { channel, offset, bytes }, CodecFormat::Proto) => {
                        let segments = Self::output_segments(*channel, *offset, bytes);
                        Ok(EncodedBody::from_segments(segments))
                    }
                    _ => Encodable::<$response>::encode(self, codec).map(EncodedBody::from),
                }
            }
        }
    };
}
encode_as!(StartResponse);
encode_as!(ConnectResponse);

/// The head of a length-delimited field.
fn head(field: u64, length: usize) -> BytesMut {
    let mut head = BytesMut::with_capacity(8);
    put_number(&mut head, field << 3 | 2);
    put_number(&mut head, length as u64);
    head
}

/// A number as protobuf writes it: seven bits a byte, the low ones first.
fn put_number(out: &mut BytesMut, mut number: u64) {
    while number > 0x7f {
        out.put_u8(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.put_u8(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_without_a_copy_is_the_same_message() {
        for length in [0, 1, 127, 128, 20_000, 32_768] {
            for (channel, offset) in [
                (Channel::Stdout, Some(0)),
                (Channel::Stderr, Some(u64::MAX)),
                (Channel::Terminal, Some(300)),
                (Channel::Terminal, None),
            ] {
                let event = Event::Output { channel, offset, bytes: Bytes::from(vec![7; length]) };
                let whole = Encodable::<StartResponse>::encode(&event, CodecFormat::Proto);
                let parts = Encodable::<StartResponse>::encode_segments(&event, CodecFormat::Proto);
                assert_eq!(whole.unwrap(), parts.unwrap().into_contiguous(), "{length}");
            }
        }
    }

    #[test]
    fn output_is_base64_in_json() {
        let bytes = Bytes::from_static(b"\xff\0");
        let event = Event::Output { channel: Channel::Stderr, offset: Some(5), bytes };
        let json = Encodable::<StartResponse>::encode(&event, CodecFormat::Json).unwrap();
        assert_eq!(json, r#"{"event":{"data":{"offset":"5","stderr":"/wA="}}}"#);
    }
}
