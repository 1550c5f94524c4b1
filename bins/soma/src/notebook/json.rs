//! JSON that is changed in places, and stays as it is everywhere else.
//!
//! An [`Object`] keeps the order of its keys and the text of its values: numbers are not rounded,
//! and unknown fields stay. [`lay_out`] is how notebooks are written: one space for each level.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The deepest that a notebook may be nested.
pub(super) const DEEPEST: usize = 200;

/// An object, whose values nobody has looked into.
#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    fields: Vec<(String, Box<RawValue>)>,
}

impl Object {
    /// The text of a field. Of two with one name the last counts, as for everybody else.
    pub(super) fn text(&self, name: &str) -> Option<&RawValue> {
        self.fields.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A field, if it is of this shape.
    pub(super) fn get<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.text(name)?.get()).ok()
    }

    /// Sets a field, in its place, or at the end where it is new.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        let value = serde_json::value::to_raw_value(value)?;
        match self.fields.iter_mut().rev().find(|(known, _)| known == name) {
            Some((_, field)) => *field = value,
            None => self.fields.push((name.to_owned(), value)),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object { fields })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// How deep a text is nested that is JSON.
pub(super) fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    tokens(json, |token| match token {
        Token::Open(_) => {
            depth += 1;
            deepest = deepest.max(depth);
        }
        Token::Close(_) => depth = depth.saturating_sub(1),
        _ => {}
    });
    deepest
}

/// The same JSON on lines of its own, one space for each level.
pub(super) fn lay_out(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 4);
    let mut depth = 0;
    let mut is_empty = false;
    let new_line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', depth));
    };
    tokens(json, |token| {
        if is_empty && !matches!(token, Token::Close(_)) {
            new_line(&mut text, depth);
            is_empty = false;
        }
        match token {
            Token::Open(bracket) => {
                text.push(bracket);
                depth += 1;
                is_empty = true;
            }
            Token::Close(bracket) => {
                depth = depth.saturating_sub(1);
                if !std::mem::take(&mut is_empty) {
                    new_line(&mut text, depth);
                }
                text.push(bracket);
            }
            Token::Comma => {
                text.push(',');
                new_line(&mut text, depth);
            }
            Token::Colon => text.push_str(": "),
            Token::Scalar(scalar) => text.push_str(scalar),
        }
    });
    text.push('\n');
    text
}

enum Token<'a> {
    Open(char),
    Close(char),
    Comma,
    Colon,
    /// A string with its quotes, a number or a word.
    Scalar(&'a str),
}

/// Goes through the tokens of a text that is JSON.
fn tokens<'a>(json: &'a str, mut see: impl FnMut(Token<'a>)) {
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let begin = at;
        match bytes[at] {
            b'{' | b'[' => see(Token::Open(char::from(bytes[at]))),
            b'}' | b']' => see(Token::Close(char::from(bytes[at]))),
            b',' => see(Token::Comma),
            b':' => see(Token::Colon),
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                see(Token::Scalar(&json[begin..(at + 1).min(json.len())]));
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => {
                while at + 1 < bytes.len() && !b",:]} \t\r\n".contains(&bytes[at + 1]) {
                    at += 1;
                }
                see(Token::Scalar(&json[begin..=at]));
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_stays_to_the_letter() {
        let text = r#"{"b": 1.50e1, "a": {"z": "\u00e9", "y": []}, "n": 12345678901234567890123}"#;
        let mut object: Object = serde_json::from_str(text).unwrap();
        object.set("a", &[1]).unwrap();
        object.set("new", &true).unwrap();
        let text = serde_json::to_string(&object).unwrap();
        assert_eq!(text, r#"{"b":1.50e1,"a":[1],"n":12345678901234567890123,"new":true}"#);
    }

    #[test]
    fn it_is_laid_out_as_notebooks_are() {
        let text = r#"{"a":[1,{"b":"x, [y]: \"z\""}],"c":[],"d":{ },"e":null}"#;
        let laid_out = "{\n \"a\": [\n  1,\n  {\n   \"b\": \"x, [y]: \\\"z\\\"\"\n  }\n ],\n \
                        \"c\": [],\n \"d\": {},\n \"e\": null\n}\n";
        assert_eq!(lay_out(text), laid_out);
        assert_eq!(lay_out(laid_out), laid_out);
        assert_eq!(depth(text), 3);
    }
}
