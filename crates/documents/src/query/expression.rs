//! Expressions, from what binds least: `? :`, `??`, OR, AND, NOT, IN and LIKE and BETWEEN, the operators of
//! [`Binary::of`], signs, and what follows a value: `.name` and `[index]`.

use std::collections::HashSet;

use super::ast::{Aggregate, Binary, Expr, Literal, Step, Unary};
use super::function::Function;
use super::lexer::Token;
use super::parser::{MAX_DEPTH, Parser};
use super::{Result, refused};

impl<'a> Parser<'a> {
    pub(super) fn expression(&mut self) -> Result<Expr> {
        self.nested(|parser| {
            let condition = parser.coalesce()?;
            if !parser.take_sign("?")? {
                return Ok(condition);
            }
            let then = parser.expression()?;
            parser.sign(":")?;
            let otherwise = parser.expression()?;
            Ok(Expr::Conditional(Box::new([condition, then, otherwise])))
        })
    }

    /// Every recursion goes through here, so none is deeper than [`MAX_DEPTH`].
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    fn coalesce(&mut self) -> Result<Expr> {
        let first = self.or()?;
        let mut rest = vec![];
        while self.take_sign("??")? {
            rest.push((Binary::Coalesce, self.or()?));
        }
        Ok(chain(first, rest))
    }

    fn or(&mut self) -> Result<Expr> {
        self.logic("OR", Expr::Or, Self::and)
    }

    fn and(&mut self) -> Result<Expr> {
        self.logic("AND", Expr::And, Self::not)
    }

    fn logic(
        &mut self,
        keyword: &str,
        of: fn(Vec<Expr>) -> Expr,
        operand: fn(&mut Self) -> Result<Expr>,
    ) -> Result<Expr> {
        let first = operand(self)?;
        if !self.is_keyword(keyword) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.take_keyword(keyword)? {
            operands.push(operand(self)?);
        }
        Ok(of(operands))
    }

    fn not(&mut self) -> Result<Expr> {
        if !self.take_keyword("NOT")? {
            return self.predicate();
        }
        let of = self.nested(Self::not)?;
        Ok(Expr::Unary(Unary::Not, Box::new(of)))
    }

    fn predicate(&mut self) -> Result<Expr> {
        let value = self.binary(0)?;
        let negated = self.take_keyword("NOT")?;
        let holds = if self.take_keyword("IN")? {
            Expr::In(Box::new(value), self.items_of_in()?)
        } else if self.take_keyword("LIKE")? {
            self.like(value)?
        } else if self.take_keyword("BETWEEN")? {
            let low = self.binary(0)?;
            self.keyword("AND")?;
            Expr::Between(Box::new([value, low, self.binary(0)?]))
        } else if negated {
            return Err(self.unexpected("IN, LIKE or BETWEEN"));
        } else {
            return Ok(value);
        };
        Ok(match negated {
            true => Expr::Unary(Unary::Not, Box::new(holds)),
            false => holds,
        })
    }

    fn items_of_in(&mut self) -> Result<Vec<Expr>> {
        self.sign("(")?;
        if self.is_keyword("SELECT") {
            return Err(self.unsupported("a subquery"));
        }
        if self.token == Token::Sign(")") {
            return Err(self.unexpected("a value"));
        }
        self.list(")")
    }

    fn like(&mut self, value: Expr) -> Result<Expr> {
        let pattern = self.binary(0)?;
        let mut escape = None;
        if self.take_keyword("ESCAPE")? {
            let Token::String(text) = &self.token else {
                return Err(self.unexpected("a string of one character"));
            };
            let mut chars = text.chars();
            escape = chars.next().filter(|_| chars.next().is_none());
            if escape.is_none() {
                return Err(self.unexpected("a string of one character"));
            }
            self.advance()?;
        }
        Ok(Expr::Like(Box::new([value, pattern]), escape))
    }

    /// Operators that bind at least as strongly as `least`.
    fn binary(&mut self, least: u8) -> Result<Expr> {
        let mut left = self.unary()?;
        while let Some((_, level)) = self.operator()
            && level >= least
        {
            let mut rest = vec![];
            while let Some((operator, same)) = self.operator()
                && same == level
            {
                self.advance()?;
                rest.push((operator, self.nested(|parser| parser.binary(level + 1))?));
            }
            left = chain(left, rest);
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(Binary, u8)> {
        match self.token {
            Token::Sign(sign) => Binary::of(sign),
            _ => None,
        }
    }

    fn unary(&mut self) -> Result<Expr> {
        let operator = match self.token {
            Token::Sign("-") => Unary::Minus,
            Token::Sign("+") => Unary::Plus,
            Token::Sign("~") => Unary::Complement,
            _ => return self.postfix(),
        };
        self.advance()?;
        if let (Unary::Minus, Token::Number(text)) = (operator, &self.token) {
            let number = number(&format!("-{text}"));
            let number = number.ok_or_else(|| self.unexpected("a number"))?;
            self.advance()?;
            return self.steps(Expr::Literal(Literal::Number(number)));
        }
        let of = self.nested(Self::unary)?;
        Ok(Expr::Unary(operator, Box::new(of)))
    }

    fn postfix(&mut self) -> Result<Expr> {
        let base = self.primary()?;
        self.steps(base)
    }

    fn steps(&mut self, mut base: Expr) -> Result<Expr> {
        loop {
            let step = if self.take_sign(".")? {
                let Token::Word(name) = self.token else {
                    return Err(self.unexpected("the name of a member"));
                };
                self.advance()?;
                Expr::Literal(Literal::String(name.to_owned()))
            } else if self.take_sign("[")? {
                let index = self.without_aggregates(Self::expression)?;
                self.sign("]")?;
                index
            } else {
                return Ok(base);
            };
            base = match (base, step) {
                (Expr::Path(mut path), step) => match plain_step(step) {
                    Ok(_) if path.len() == MAX_DEPTH => return Err(self.too_deep()),
                    Ok(step) => {
                        path.push(step);
                        Expr::Path(path)
                    }
                    Err(step) => Expr::Index(Box::new(Expr::Path(path)), vec![step]),
                },
                (Expr::Index(base, mut steps), step) => {
                    steps.push(step);
                    Expr::Index(base, steps)
                }
                (base, step) => Expr::Index(Box::new(base), vec![step]),
            };
        }
    }

    fn primary(&mut self) -> Result<Expr> {
        let at = self.at;
        let expr = match &self.token {
            Token::Number(text) => {
                let number = number(text).ok_or_else(|| self.unexpected("a number"))?;
                Expr::Literal(Literal::Number(number))
            }
            Token::String(text) => Expr::Literal(Literal::String(text.clone())),
            &Token::Parameter(name) => {
                if name == "@" {
                    return Err(self.unexpected("the name of a parameter"));
                }
                self.note_parameter(name);
                Expr::Parameter(name.to_owned())
            }
            &Token::Word(word) => {
                self.advance()?;
                return self.word(word, at);
            }
            &Token::Sign(sign @ ("(" | "[" | "{")) => {
                self.advance()?;
                return self.bracketed(sign);
            }
            _ => return Err(self.unexpected("a value")),
        };
        self.advance()?;
        Ok(expr)
    }

    fn bracketed(&mut self, sign: &str) -> Result<Expr> {
        match sign {
            "[" => Ok(Expr::Array(self.list("]")?)),
            "{" => self.object(),
            _ => {
                if self.is_keyword("SELECT") {
                    return Err(self.unsupported("a subquery"));
                }
                let inner = self.expression()?;
                self.sign(")")?;
                Ok(inner)
            }
        }
    }

    /// A word that begins a value: a literal, a function, or the name of the source.
    fn word(&mut self, word: &'a str, at: usize) -> Result<Expr> {
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if self.token == Token::Sign("(") {
            return self.call(word, at);
        }
        if is("udf") && self.token == Token::Sign(".") {
            return Err(refused(at, "a user-defined function is not supported"));
        }
        Ok(match () {
            () if is("true") => Expr::Literal(Literal::Bool(true)),
            () if is("false") => Expr::Literal(Literal::Bool(false)),
            () if is("null") => Expr::Literal(Literal::Null),
            () if is("undefined") => Expr::Literal(Literal::Undefined),
            () => {
                self.roots.push((word, at));
                Expr::Path(vec![])
            }
        })
    }

    fn call(&mut self, name: &str, at: usize) -> Result<Expr> {
        self.advance()?;
        if ["EXISTS", "ARRAY", "ALL", "FIRST", "LAST"]
            .iter()
            .any(|key| key.eq_ignore_ascii_case(name))
            && self.is_keyword("SELECT")
        {
            return Err(refused(
                at,
                format!("{name} of a subquery is not supported"),
            ));
        }
        if let Some(aggregate) = Aggregate::named(name) {
            if !self.aggregates {
                let where_not = format!("{name} stands where no aggregate can");
                return Err(refused(at, where_not));
            }
            let of = self.without_aggregates(Self::expression)?;
            self.sign(")")?;
            return Ok(Expr::Aggregate(aggregate, Box::new(of)));
        }
        let function = Function::named(name)
            .ok_or_else(|| refused(at, format!("the function {name} is not supported")))?;
        let arguments = self.list(")")?;
        let (least, most) = function.arguments();
        if !(least..=most).contains(&arguments.len()) {
            let count = arguments.len();
            let error = format!("{name} does not take {count} arguments");
            return Err(refused(at, error));
        }
        Ok(Expr::Call(function, arguments))
    }

    fn without_aggregates<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outside = std::mem::replace(&mut self.aggregates, false);
        let done = inner(self);
        self.aggregates = outside;
        done
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expr>> {
        let mut items = vec![];
        if self.take_sign(end)? {
            return Ok(items);
        }
        loop {
            items.push(self.expression()?);
            if !self.take_sign(",")? {
                self.sign(end)?;
                return Ok(items);
            }
        }
    }

    fn object(&mut self) -> Result<Expr> {
        let (mut members, mut names) = (vec![], HashSet::new());
        if self.take_sign("}")? {
            return Ok(Expr::Object(members));
        }
        loop {
            let (at, name) = (
                self.at,
                match &self.token {
                    Token::Word(name) => (*name).to_owned(),
                    Token::String(name) => name.clone(),
                    _ => return Err(self.unexpected("the name of a member")),
                },
            );
            self.advance()?;
            self.sign(":")?;
            if !names.insert(name.clone()) {
                return Err(refused(at, format!("two members are called '{name}'")));
            }
            members.push((name, self.expression()?));
            if !self.take_sign(",")? {
                self.sign("}")?;
                return Ok(Expr::Object(members));
            }
        }
    }
}

fn chain(first: Expr, rest: Vec<(Binary, Expr)>) -> Expr {
    match rest.is_empty() {
        true => first,
        false => Expr::Chain(Box::new(first), rest),
    }
}

/// A step that is known before any document is.
fn plain_step(step: Expr) -> std::result::Result<Step, Expr> {
    match step {
        Expr::Literal(Literal::String(name)) => Ok(Step::Member(name)),
        Expr::Literal(Literal::Number(text)) => match text.parse() {
            Ok(at) => Ok(Step::Element(at)),
            Err(_) => Err(Expr::Literal(Literal::Number(text))),
        },
        step => Err(step),
    }
}

/// The text of a number, as JSON has it: `.5` and `1.` are none there.
fn number(text: &str) -> Option<String> {
    let value: f64 = text.parse().ok()?;
    let is_json = serde_json::from_str::<f64>(text).is_ok();
    value.is_finite().then(|| match is_json {
        true => text.to_owned(),
        false => super::value::number_text(value),
    })
}
