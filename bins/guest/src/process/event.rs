//! What happens to a process, and how it looks on the wire.

use bytes::{BufMut as _, Bytes, BytesMut};
use connectrpc::{CodecFormat, ConnectError, Encodable, EncodedBody};
use guest_proto::process::__buffa::oneof::process_event::Event as EventKind;
use guest_proto::process::__buffa::oneof::process_event::data_event::Output;
use guest_proto::process::process_event::{DataEvent, EndEvent, KeepAlive, StartEvent};
use guest_proto::process::{ConnectResponse, ProcessEvent, StartResponse};

use super::ending::Ending;

/// Something that happened to a process.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// It runs.
    Start { pid: u32 },
    /// It wrote something.
    Output { channel: Channel, bytes: Bytes },
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
}

impl Event {
    fn message(&self) -> ProcessEvent {
        let event = match self {
            Self::Start { pid } => {
                EventKind::from(StartEvent { pid: *pid, ..StartEvent::default() })
            }
            Self::Output { channel, bytes } => {
                let bytes = bytes.to_vec();
                let output = match channel {
                    Channel::Stdout => Output::Stdout(bytes),
                    Channel::Stderr => Output::Stderr(bytes),
                };
                EventKind::from(DataEvent { output: Some(output), ..DataEvent::default() })
            }
            Self::End(ending) => EventKind::from(EndEvent::from(*ending)),
            Self::KeepAlive => EventKind::from(KeepAlive::default()),
        };
        ProcessEvent { event: Some(event), ..ProcessEvent::default() }
    }

    /// Output in protobuf's binary form: a few bytes of ours and the bytes as they were read, so
    /// that a gigabyte of output is not copied once more.
    fn output_segments(channel: Channel, bytes: &Bytes) -> Vec<Bytes> {
        let field = match channel {
            Channel::Stdout => 1,
            Channel::Stderr => 2,
        };
        // Inside out: the bytes in a DataEvent, as `data` of a ProcessEvent, as `event` of a
        // response.
        let in_data = tag(field, bytes.len());
        let in_event = tag(2, in_data.len() + bytes.len());
        let in_response = tag(1, in_event.len() + in_data.len() + bytes.len());
        let head = [in_response, in_event, in_data].concat();
        vec![Bytes::from(head), bytes.clone()]
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
                    (Self::Output { channel, bytes }, CodecFormat::Proto) => {
                        Ok(EncodedBody::from_segments(Self::output_segments(*channel, bytes)))
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
fn tag(field: u8, length: usize) -> BytesMut {
    let mut head = BytesMut::with_capacity(8);
    head.put_u8(field << 3 | 2);
    let mut rest = length;
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap_or_default();
        rest >>= 7;
        if rest == 0 {
            head.put_u8(low);
            return head;
        }
        head.put_u8(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_without_a_copy_is_the_same_message() {
        for length in [0, 1, 127, 128, 20_000, 32_768] {
            for channel in [Channel::Stdout, Channel::Stderr] {
                let event = Event::Output { channel, bytes: Bytes::from(vec![7; length]) };
                let whole = Encodable::<StartResponse>::encode(&event, CodecFormat::Proto);
                let parts = Encodable::<StartResponse>::encode_segments(&event, CodecFormat::Proto);
                assert_eq!(whole.unwrap(), parts.unwrap().into_contiguous(), "{length}");
            }
        }
    }

    #[test]
    fn output_is_base64_in_json() {
        let event =
            Event::Output { channel: Channel::Stderr, bytes: Bytes::from_static(b"\xff\0") };
        let json = Encodable::<StartResponse>::encode(&event, CodecFormat::Json).unwrap();
        assert_eq!(json, r#"{"event":{"data":{"stderr":"/wA="}}}"#);
    }
}
