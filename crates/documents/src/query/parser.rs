//! The clauses of a query, by recursive descent; expressions are read by expression.rs.

use std::collections::HashSet;

use super::ast::{Count, Expr, OrderKey, Projection, Select, Source, Step};
use super::lexer::{Lexer, Token};
use super::{Error, MAX_TEXT_BYTES, Result, refused};

/// How deep expressions nest, and how many steps a path has.
pub(super) const MAX_DEPTH: usize = 100;
/// How many keys GROUP BY and ORDER BY take.
const MAX_KEYS: usize = 64;

/// These are no names of documents: a clause begins with each, or an operator is one.
const RESERVED: [&str; 21] = [
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "OFFSET", "LIMIT", "JOIN", "IN", "AS",
    "AND", "OR", "NOT", "BETWEEN", "LIKE", "ESCAPE", "VALUE", "ASC", "DESC", "EXISTS",
];

pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(super) token: Token<'a>,
    /// Where the token begins.
    pub(super) at: usize,
    pub(super) depth: usize,
    /// Whether an aggregate may stand here: in the list of what is selected, and in no other aggregate.
    pub(super) aggregates: bool,
    /// The names that paths begin with. FROM, which says what is one, comes later.
    pub(super) roots: Vec<(&'a str, usize)>,
    /// In the order of their first use.
    parameters: Vec<(String, usize)>,
    noted: HashSet<&'a str>,
}

/// A query, and where it first uses each parameter.
pub(super) struct Parsed {
    pub select: Select,
    pub parameters: Vec<(String, usize)>,
    /// Where the list of what is selected begins.
    pub projection_at: usize,
}

pub(super) fn parse(text: &str) -> Result<Parsed> {
    if text.len() > MAX_TEXT_BYTES {
        let error = format!("the query has more than {MAX_TEXT_BYTES} bytes");
        return Err(Error::bad_request(error));
    }
    let mut parser = Parser {
        lexer: Lexer::new(text),
        token: Token::End,
        at: 0,
        depth: 0,
        aggregates: false,
        roots: vec![],
        parameters: vec![],
        noted: HashSet::new(),
    };
    parser.advance()?;
    parser.select()
}

impl<'a> Parser<'a> {
    fn select(mut self) -> Result<Parsed> {
        self.keyword("SELECT")?;
        let distinct = self.take_keyword("DISTINCT")?;
        let top = if self.take_keyword("TOP")? {
            Some(self.count()?)
        } else {
            None
        };
        let projection_at = self.at;
        self.aggregates = true;
        let items = self.projection()?;
        self.aggregates = false;
        let mut alias = "";
        let mut source = None;
        if self.take_keyword("FROM")? {
            let (name, from) = self.source()?;
            alias = name;
            source = Some(from);
        }
        let filter = if self.take_keyword("WHERE")? {
            Some(self.expression()?)
        } else {
            None
        };
        let group = if self.take_keyword("GROUP")? {
            self.keyword("BY")?;
            self.keys(Self::expression)?
        } else {
            vec![]
        };
        let order_at = self.at;
        let order = if self.take_keyword("ORDER")? {
            self.keyword("BY")?;
            if self.is_keyword("RANK") {
                return Err(self.unsupported("ORDER BY RANK"));
            }
            self.keys(Self::order_key)?
        } else {
            vec![]
        };
        let window_at = self.at;
        let window = if self.take_keyword("OFFSET")? {
            let offset = self.count()?;
            self.keyword("LIMIT")?;
            Some((offset, self.count()?))
        } else {
            None
        };
        if self.token == Token::Sign(";") {
            self.advance()?;
        }
        if self.token != Token::End {
            return Err(self.unexpected("the end of the query"));
        }
        if !group.is_empty() && !order.is_empty() {
            return Err(refused(order_at, "ORDER BY does not go with GROUP BY"));
        }
        if top.is_some() && window.is_some() {
            return Err(refused(window_at, "OFFSET does not go with TOP"));
        }
        self.check_roots(source.is_some().then_some(alias))?;
        let projection = match items {
            Items::All if source.is_none() => {
                return Err(refused(projection_at, "SELECT * needs a FROM"));
            }
            Items::All => Projection::All,
            Items::Value(expr) => Projection::Value(expr),
            Items::List(items) => Projection::List(named(items, alias)?),
        };
        Ok(Parsed {
            select: Select {
                distinct,
                top,
                projection,
                source,
                filter,
                group,
                order,
                window,
            },
            parameters: self.parameters,
            projection_at,
        })
    }

    fn projection(&mut self) -> Result<Items> {
        if self.token == Token::Sign("*") {
            self.advance()?;
            return Ok(Items::All);
        }
        if self.take_keyword("VALUE")? {
            return Ok(Items::Value(self.expression()?));
        }
        let mut items = vec![];
        loop {
            let at = self.at;
            let expr = self.expression()?;
            let mut name = None;
            if self.take_keyword("AS")? || self.is_name() || matches!(self.token, Token::String(_))
            {
                name = Some(self.name()?);
            }
            items.push((at, expr, name));
            if !self.take_sign(",")? {
                return Ok(Items::List(items));
            }
        }
    }

    /// The source, behind FROM: the name that stands for it in the query, and what it is.
    fn source(&mut self) -> Result<(&'a str, Source)> {
        if self.token == Token::Sign("(") {
            return Err(self.unsupported("a subquery"));
        }
        let first = self.root_name()?;
        if self.take_keyword("IN")? {
            self.root_name()?;
            let path = self.source_path()?.1;
            self.refuse_joins()?;
            let iterates = true;
            return Ok((first, Source { path, iterates }));
        }
        let (last, path) = self.source_path()?;
        let mut alias = last.unwrap_or(first);
        if self.take_keyword("AS")? || self.is_name() {
            alias = self.root_name()?;
        }
        self.refuse_joins()?;
        let iterates = false;
        Ok((alias, Source { path, iterates }))
    }

    /// The steps, and the last name among them.
    fn source_path(&mut self) -> Result<(Option<&'a str>, Vec<Step>)> {
        let (mut last, mut path) = (None, vec![]);
        loop {
            if self.take_sign(".")? {
                let Token::Word(name) = self.token else {
                    return Err(self.unexpected("the name of a member"));
                };
                self.advance()?;
                last = Some(name);
                path.push(Step::Member(name.to_owned()));
            } else if self.take_sign("[")? {
                path.push(match &self.token {
                    Token::String(name) => Step::Member(name.clone()),
                    Token::Number(text) => {
                        let index = text.parse();
                        Step::Element(index.map_err(|_| self.unexpected("an index"))?)
                    }
                    _ => return Err(self.unexpected("a name in quotes, or an index")),
                });
                self.advance()?;
                self.sign("]")?;
            } else {
                return Ok((last, path));
            }
            if path.len() > MAX_DEPTH {
                return Err(self.too_deep());
            }
        }
    }

    fn refuse_joins(&self) -> Result<()> {
        if self.is_keyword("JOIN") {
            return Err(self.unsupported("JOIN"));
        }
        match self.token {
            Token::Sign(",") => Err(self.unsupported("FROM with several sources")),
            _ => Ok(()),
        }
    }

    fn keys<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut keys = vec![];
        loop {
            if keys.len() == MAX_KEYS {
                return Err(refused(
                    self.at,
                    format!("there are more than {MAX_KEYS} keys"),
                ));
            }
            keys.push(one(self)?);
            if !self.take_sign(",")? {
                return Ok(keys);
            }
        }
    }

    fn order_key(&mut self) -> Result<OrderKey> {
        let expr = self.expression()?;
        let descending = self.take_keyword("DESC")?;
        if !descending {
            self.take_keyword("ASC")?;
        }
        Ok(OrderKey { expr, descending })
    }

    fn count(&mut self) -> Result<Count> {
        let count = match &self.token {
            Token::Number(text) => text.parse().ok().map(Count::Literal),
            &Token::Parameter(name) => {
                self.note_parameter(name);
                Some(Count::Parameter(name.to_owned()))
            }
            _ => None,
        };
        let count = count.ok_or_else(|| self.unexpected("a count"))?;
        self.advance()?;
        Ok(count)
    }

    /// Every path begins with the source's name. Without a source there is none.
    fn check_roots(&self, alias: Option<&str>) -> Result<()> {
        let stranger = self.roots.iter().find(|(name, _)| Some(*name) != alias);
        stranger.map_or(Ok(()), |(name, at)| {
            Err(refused(*at, format!("'{name}' is no name that FROM gives")))
        })
    }

    pub(super) fn note_parameter(&mut self, name: &'a str) {
        if self.noted.insert(name) {
            self.parameters.push((name.to_owned(), self.at));
        }
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        (self.at, self.token) = self.lexer.next()?;
        Ok(())
    }

    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.token, Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    pub(super) fn take_keyword(&mut self, keyword: &str) -> Result<bool> {
        let there = self.is_keyword(keyword);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    pub(super) fn keyword(&mut self, keyword: &str) -> Result<()> {
        match self.take_keyword(keyword)? {
            true => Ok(()),
            false => Err(self.unexpected(keyword)),
        }
    }

    pub(super) fn take_sign(&mut self, sign: &str) -> Result<bool> {
        let there = matches!(self.token, Token::Sign(is) if is == sign);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    pub(super) fn sign(&mut self, sign: &str) -> Result<()> {
        match self.take_sign(sign)? {
            true => Ok(()),
            false => Err(self.unexpected(&format!("'{sign}'"))),
        }
    }

    fn is_name(&self) -> bool {
        let reserved = |word: &str| RESERVED.iter().any(|key| key.eq_ignore_ascii_case(word));
        matches!(self.token, Token::Word(word) if !reserved(word))
    }

    fn root_name(&mut self) -> Result<&'a str> {
        let Token::Word(name) = self.token else {
            return Err(self.unexpected("a name"));
        };
        if !self.is_name() {
            return Err(self.unexpected("a name"));
        }
        self.advance()?;
        Ok(name)
    }

    fn name(&mut self) -> Result<String> {
        let name = match &self.token {
            Token::Word(name) => (*name).to_owned(),
            Token::String(name) => name.clone(),
            _ => return Err(self.unexpected("a name")),
        };
        self.advance()?;
        Ok(name)
    }

    pub(super) fn unexpected(&self, wanted: &str) -> Error {
        let found = match &self.token {
            Token::Word(word) | Token::Parameter(word) | Token::Number(word) => format!("'{word}'"),
            Token::String(_) => "a string".to_owned(),
            Token::Sign(sign) => format!("'{sign}'"),
            Token::End => "the end of the query".to_owned(),
        };
        refused(
            self.at,
            format!("{found} stands where {wanted} is expected"),
        )
    }

    pub(super) fn unsupported(&self, what: &str) -> Error {
        refused(self.at, format!("{what} is not supported"))
    }

    pub(super) fn too_deep(&self) -> Error {
        refused(
            self.at,
            format!("the query nests more than {MAX_DEPTH} deep"),
        )
    }
}

enum Items {
    All,
    Value(Expr),
    /// With their positions, and their names as far as AS gives any.
    List(Vec<(usize, Expr, Option<String>)>),
}

/// An expression without a name is called by the last member of its path, else `$1`, `$2` and so on.
fn named(items: Vec<(usize, Expr, Option<String>)>, alias: &str) -> Result<Vec<(Expr, String)>> {
    let (mut names, mut unnamed) = (HashSet::new(), 0);
    let named = items.into_iter().map(|(at, expr, name)| {
        let name = name.unwrap_or_else(|| match &expr {
            Expr::Path(path) if path.is_empty() => alias.to_owned(),
            Expr::Path(path) => match path.last() {
                Some(Step::Member(name)) => name.clone(),
                _ => numbered(&mut unnamed),
            },
            _ => numbered(&mut unnamed),
        });
        if !names.insert(name.clone()) {
            return Err(refused(at, format!("two members are called '{name}'")));
        }
        Ok((expr, name))
    });
    named.collect()
}

fn numbered(unnamed: &mut u32) -> String {
    *unnamed += 1;
    format!("${unnamed}")
}
