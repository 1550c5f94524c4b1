//! One answer to a sandbox, with the reason in it where there is room for reasons.

use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, Record};

use super::address_record;
use crate::egress::judge::Verdict;

/// What we take, and send to whoever takes as much.
const PAYLOAD: u16 = 1232;
/// What everybody takes.
const SMALLEST_PAYLOAD: u16 = 512;
/// Answers over a connection are no longer.
const LARGEST: usize = 16 * 1024;
/// RFC 8914: the option that tells reasons, and two of them.
const REASON: u16 = 15;
const BLOCKED: u16 = 15;
const FILTERED: u16 = 17;

/// An answer that is being made.
#[derive(Debug)]
pub(crate) struct Reply {
    message: Message,
    payload: u16,
}

impl Reply {
    /// An empty answer to a question: the name exists, and has nothing of the kind.
    pub(super) fn to(question: &Message) -> Self {
        let mut message = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        message.metadata.op_code = question.metadata.op_code;
        message.metadata.recursion_desired = question.metadata.recursion_desired;
        message.metadata.recursion_available = true;
        message.queries.clone_from(&question.queries);
        let mut payload = SMALLEST_PAYLOAD;
        if let Some(edns) = &question.edns {
            payload = edns.max_payload().clamp(SMALLEST_PAYLOAD, PAYLOAD);
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD);
            message.set_edns(edns);
        }
        Self { message, payload }
    }

    /// The answer to what is no question, if it has a number to answer to.
    pub(super) fn to_nonsense(bytes: &[u8]) -> Option<Self> {
        let [first, second, flags, ..] = bytes else { return None };
        if bytes.len() < 12 || flags & 0x80 != 0 {
            return None;
        }
        let number = u16::from_be_bytes([*first, *second]);
        let message = Message::new(number, MessageType::Response, OpCode::Query);
        Some(Self { message, payload: SMALLEST_PAYLOAD }.with(ResponseCode::FormErr))
    }

    /// The same with another code.
    pub(super) fn with(mut self, code: ResponseCode) -> Self {
        self.message.metadata.response_code = code;
        if let Some(edns) = &mut self.message.edns {
            edns.set_rcode_high(code.high());
        }
        self
    }

    /// No, and why.
    pub(super) fn refused(mut self, code: ResponseCode, verdict: &Verdict) -> Self {
        if let Some(edns) = &mut self.message.edns {
            let is_blocked = verdict.rule.starts_with("block");
            let mut reason = if is_blocked { BLOCKED } else { FILTERED }.to_be_bytes().to_vec();
            reason.extend(verdict.rule.bytes().take(200));
            edns.options_mut().insert(EdnsOption::Unknown(REASON, reason));
        }
        self.with(code)
    }

    /// The same with an address.
    pub(super) fn address(mut self, name: &str, address: Ipv4Addr, seconds: u32) -> Self {
        // As it was asked for: some compare letters exactly.
        let asked = self.message.queries.first().map(|query| query.name().clone());
        let named = asked.or_else(|| Name::from_ascii(format!("{name}.")).ok());
        if let Some(named) = named {
            self.add(address_record(named, address, seconds));
        }
        self
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: Record) {
        self.message.add_answer(record);
    }

    /// As a packet that the asker takes; one that says so when something was left out.
    pub(super) fn to_packet(&self) -> Vec<u8> {
        self.to_bytes(usize::from(self.payload))
    }

    /// As bytes for a connection.
    pub(super) fn to_stream(&self) -> Vec<u8> {
        self.to_bytes(LARGEST)
    }

    fn to_bytes(&self, most: usize) -> Vec<u8> {
        match self.message.to_vec() {
            Ok(bytes) if bytes.len() <= most => bytes,
            _ => {
                let mut message = self.message.clone();
                message.answers.clear();
                message.metadata.truncation = true;
                message.to_vec().unwrap_or_default()
            }
        }
    }
}
