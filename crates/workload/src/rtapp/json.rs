//! JSON as rt-app and workgen read it, with positions.
//!
//! Tokens (strings, escapes, numbers, comments) are `jsonc-parser`'s; the tree is built here because workgen's
//! dialect has a form no JSON parser takes: a key without a value (`"suspend",`). Also allowed, as in json-c: C
//! comments, a trailing comma, single quotes. Not allowed, as there: missing commas, bare words.

use std::borrow::Cow;
use std::cell::Cell;

use jsonc_parser::errors::ParseError;
use jsonc_parser::tokens::Token;
use jsonc_parser::{Scanner, ScannerOptions};

use super::error::{Pos, Problem, RtAppError};
use super::{MAX_BYTES, MAX_DEPTH, MAX_VALUES};

/// A value and where it starts.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub at: usize,
    pub node: Node<'a>,
}

#[derive(Debug)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<Item<'a>>),
    Object(Vec<Member<'a>>),
}

/// One `"key": value` of an object; workgen's dialect may omit the value.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub key: Cow<'a, str>,
    pub at: usize,
    pub value: Option<Item<'a>>,
}

impl Node<'_> {
    /// The value as an error message shows it.
    pub fn show(&self) -> String {
        match self {
            Node::Null => "null".into(),
            Node::Bool(b) => b.to_string(),
            Node::Number(n) => cut(n),
            Node::String(s) => format!("{:?}", cut(s)),
            Node::Array(_) => "an array".into(),
            Node::Object(_) => "an object".into(),
        }
    }
}

/// At most 40 characters of a text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

/// Turns byte offsets into lines and columns.
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// The last answer (line, offset, column), from where the next one on the same line is counted: a file of one
    /// long line stays linear.
    last: Cell<(usize, usize, usize)>,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Self {
        let starts =
            std::iter::once(0).chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        Lines { text, starts: starts.collect(), last: Cell::new((0, 0, 0)) }
    }

    pub fn pos(&self, at: usize) -> Pos {
        let line = self.starts.partition_point(|&s| s <= at).saturating_sub(1);
        let (last_line, from, before) = self.last.get();
        let (from, before) = if last_line == line { (from, before) } else { (self.starts[line], 0) };
        let chars = |a: usize, b: usize| self.text.get(a..b).map_or(0, |s| s.chars().count());
        let column = if from <= at { before + chars(from, at) } else { before.saturating_sub(chars(at, from)) };
        self.last.set((line, at, column));
        Pos { line: line as u32 + 1, column: column as u32 + 1 }
    }
}

struct Builder<'a, 'l> {
    scanner: Scanner<'a>,
    token: Option<Token<'a>>,
    at: usize,
    lines: &'l Lines<'a>,
    file: &'l str,
    values: usize,
}

/// Read a whole text.
pub(super) fn read<'a>(text: &'a str, file: &str, lines: &Lines<'a>) -> Result<Item<'a>, RtAppError> {
    if text.len() > MAX_BYTES {
        let problem = Problem::TooLarge { bytes: text.len() };
        return Err(RtAppError { file: file.into(), pos: Pos { line: 1, column: 1 }, key: String::new(), problem });
    }
    let options = ScannerOptions {
        allow_single_quoted_strings: true,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let mut b = Builder { scanner: Scanner::new(text, &options), token: None, at: 0, lines, file, values: 0 };
    b.advance()?;
    let root = b.value(0)?;
    match b.token {
        None => Ok(root),
        Some(_) => Err(b.syntax("something follows the closing brace of the file")),
    }
}

impl<'a> Builder<'a, '_> {
    fn error(&self, at: usize, problem: Problem) -> RtAppError {
        RtAppError { file: self.file.into(), pos: self.lines.pos(at), key: String::new(), problem }
    }

    fn syntax(&self, what: impl Into<String>) -> RtAppError {
        self.error(self.at, Problem::Syntax(what.into()))
    }

    fn lexical(&self, e: ParseError) -> RtAppError {
        let at = e.range().start;
        let nothing_before = self.lines.text[..at].trim().is_empty();
        let right = if nothing_before { ": no JSON; should be a file of rt-app, which begins with `{`" } else { "" };
        self.error(at, Problem::Syntax(format!("{}{right}", e.kind())))
    }

    fn advance(&mut self) -> Result<(), RtAppError> {
        loop {
            let token = self.scanner.scan().map_err(|e| self.lexical(e))?;
            if !matches!(token, Some(Token::CommentLine(_) | Token::CommentBlock(_))) {
                self.at = if token.is_some() { self.scanner.token_start() } else { self.lines.text.len() };
                self.token = token;
                return Ok(());
            }
        }
    }

    fn found(&self) -> String {
        self.token.as_ref().map_or("the end of the file".into(), |t| format!("`{}`", cut(t.as_str())))
    }

    fn value(&mut self, depth: usize) -> Result<Item<'a>, RtAppError> {
        if depth > MAX_DEPTH {
            return Err(self.error(self.at, Problem::TooDeep));
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error(self.at, Problem::TooManyValues));
        }
        let at = self.at;
        let node = match self.token.clone() {
            Some(Token::OpenBrace) => return Ok(Item { at, node: Node::Object(self.object(depth)?) }),
            Some(Token::OpenBracket) => return Ok(Item { at, node: Node::Array(self.array(depth)?) }),
            Some(Token::String(s)) => Node::String(s),
            Some(Token::Number(n)) => Node::Number(n),
            Some(Token::Boolean(b)) => Node::Bool(b),
            Some(Token::Null) => Node::Null,
            _ => return Err(self.syntax(format!("found {}, want a value", self.found()))),
        };
        self.advance()?;
        Ok(Item { at, node })
    }

    /// After a member or element: true if another one follows.
    fn comma(&mut self, close: &Token<'_>, what: &str) -> Result<bool, RtAppError> {
        if self.token == Some(Token::Comma) {
            self.advance()?;
            return Ok(self.token.as_ref() != Some(close));
        }
        if self.token.as_ref() == Some(close) {
            return Ok(false);
        }
        Err(self.syntax(format!("found {}, want `,` or `{}` after {what}", self.found(), close.as_str())))
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Member<'a>>, RtAppError> {
        self.advance()?;
        let mut members = Vec::new();
        let mut more = self.token != Some(Token::CloseBrace);
        while more {
            let at = self.at;
            let Some(Token::String(key)) = self.token.clone() else {
                return Err(self.syntax(format!("found {}, want a key in quotes or `}}`", self.found())));
            };
            self.advance()?;
            let value = match self.token {
                Some(Token::Colon) => {
                    self.advance()?;
                    Some(self.value(depth + 1)?)
                }
                Some(Token::Comma | Token::CloseBrace) => None,
                _ => {
                    return Err(self.syntax(format!("found {}, want `:` after the key {key:?}", self.found())));
                }
            };
            members.push(Member { key, at, value });
            more = self.comma(&Token::CloseBrace, "a member")?;
        }
        self.advance()?;
        Ok(members)
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Item<'a>>, RtAppError> {
        self.advance()?;
        let mut items = Vec::new();
        let mut more = self.token != Some(Token::CloseBracket);
        while more {
            items.push(self.value(depth + 1)?);
            more = self.comma(&Token::CloseBracket, "an element")?;
        }
        self.advance()?;
        Ok(items)
    }
}
