//! A query as it was read, and its text again: what is printed reads as the same tree.

use std::fmt;

use super::escape;
use super::function::Function;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Select {
    pub distinct: bool,
    pub top: Option<Count>,
    pub projection: Projection,
    pub source: Option<Source>,
    pub filter: Option<Expr>,
    pub group: Vec<Expr>,
    pub order: Vec<OrderKey>,
    /// OFFSET and LIMIT.
    pub window: Option<(Count, Count)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Count {
    Literal(u64),
    Parameter(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Projection {
    All,
    Value(Expr),
    /// With the names of the members, of which no two are the same.
    List(Vec<(Expr, String)>),
}

/// The source that the query's one name stands for: a document, or its value at a path, or each element of the array there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source {
    pub path: Vec<Step>,
    pub iterates: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Member(String),
    Element(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct OrderKey {
    pub expr: Expr,
    pub descending: bool,
}

/// No deeper than [`super::parser::MAX_DEPTH`]: chains of operators and of indexes are flat.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Literal(Literal),
    Parameter(String),
    /// From what the source's name stands for.
    Path(Vec<Step>),
    Index(Box<Expr>, Vec<Expr>),
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Unary(Unary, Box<Expr>),
    /// Operators of one precedence, from the left.
    Chain(Box<Expr>, Vec<(Binary, Expr)>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// The value, the lower and the upper bound.
    Between(Box<[Expr; 3]>),
    In(Box<Expr>, Vec<Expr>),
    Like(Box<[Expr; 2]>, Option<char>),
    /// The condition, and what is taken where it is true and where not.
    Conditional(Box<[Expr; 3]>),
    Call(Function, Vec<Expr>),
    Aggregate(Aggregate, Box<Expr>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Undefined,
    Null,
    Bool(bool),
    /// As it was written, which is a number of JSON.
    Number(String),
    String(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unary {
    Not,
    Minus,
    Plus,
    Complement,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Binary {
    Coalesce,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
    ShiftRightUnsigned,
    Add,
    Subtract,
    Concat,
    Multiply,
    Divide,
    Remainder,
}

impl Binary {
    /// The operator that a sign stands for, and how strongly it binds.
    pub(super) fn of(sign: &str) -> Option<(Self, u8)> {
        Some(match sign {
            "|" => (Self::BitOr, 1),
            "^" => (Self::BitXor, 2),
            "&" => (Self::BitAnd, 3),
            "=" => (Self::Equal, 4),
            "!=" | "<>" => (Self::NotEqual, 4),
            "<" => (Self::Less, 5),
            "<=" => (Self::LessOrEqual, 5),
            ">" => (Self::Greater, 5),
            ">=" => (Self::GreaterOrEqual, 5),
            "<<" => (Self::ShiftLeft, 6),
            ">>" => (Self::ShiftRight, 6),
            ">>>" => (Self::ShiftRightUnsigned, 6),
            "+" => (Self::Add, 7),
            "-" => (Self::Subtract, 7),
            "||" => (Self::Concat, 7),
            "*" => (Self::Multiply, 8),
            "/" => (Self::Divide, 8),
            "%" => (Self::Remainder, 8),
            _ => return None,
        })
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Coalesce => "??",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::BitAnd => "&",
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::ShiftRightUnsigned => ">>>",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Concat => "||",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aggregate {
    Count,
    Sum,
    Min,
    Max,
    Avg,
}

impl Aggregate {
    /// As query plans call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Sum => "Sum",
            Self::Min => "Min",
            Self::Max => "Max",
            Self::Avg => "Average",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        const NAMES: [(&str, Aggregate); 5] = [
            ("COUNT", Aggregate::Count),
            ("SUM", Aggregate::Sum),
            ("MIN", Aggregate::Min),
            ("MAX", Aggregate::Max),
            ("AVG", Aggregate::Avg),
        ];
        let found = NAMES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, aggregate)| aggregate)
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        if self.distinct {
            f.write_str("DISTINCT ")?;
        }
        if let Some(top) = &self.top {
            write!(f, "TOP {top} ")?;
        }
        match &self.projection {
            Projection::All => f.write_str("*")?,
            Projection::Value(expr) => write!(f, "VALUE {expr}")?,
            Projection::List(items) => list(f, items, |f, (expr, name)| {
                write!(f, "{expr} AS {}", Quoted(name))
            })?,
        }
        if let Some(source) = &self.source {
            match source.iterates {
                true => write!(f, " FROM r IN root{}", Steps(&source.path))?,
                false => write!(f, " FROM root{} AS r", Steps(&source.path))?,
            }
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        if !self.group.is_empty() {
            f.write_str(" GROUP BY ")?;
            list(f, &self.group, |f, expr| write!(f, "{expr}"))?;
        }
        if !self.order.is_empty() {
            f.write_str(" ORDER BY ")?;
            list(f, &self.order, |f, key| {
                write!(
                    f,
                    "{}{}",
                    key.expr,
                    if key.descending { " DESC" } else { "" }
                )
            })?;
        }
        match &self.window {
            Some((offset, limit)) => write!(f, " OFFSET {offset} LIMIT {limit}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(count) => write!(f, "{count}"),
            Self::Parameter(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined => f.write_str("undefined"),
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(text) => f.write_str(text),
            Self::String(text) => write!(f, "{}", Quoted(text)),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |f: &mut fmt::Formatter<'_>, items| list(f, items, |f, e| write!(f, "{e}"));
        match self {
            Self::Literal(literal) => write!(f, "{literal}"),
            Self::Parameter(name) => f.write_str(name),
            Self::Path(steps) => write!(f, "r{}", Steps(steps)),
            Self::Index(base, steps) => {
                write!(f, "({base})")?;
                steps.iter().try_for_each(|step| write!(f, "[{step}]"))
            }
            Self::Array(items) => {
                f.write_str("[")?;
                comma(f, items)?;
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                list(f, members, |f, (name, e)| {
                    write!(f, "{}: {e}", Quoted(name))
                })?;
                f.write_str("}")
            }
            Self::Unary(Unary::Not, of) => write!(f, "(NOT {of})"),
            Self::Unary(Unary::Minus, of) => write!(f, "(-({of}))"),
            Self::Unary(Unary::Plus, of) => write!(f, "(+({of}))"),
            Self::Unary(Unary::Complement, of) => write!(f, "(~({of}))"),
            Self::Chain(first, rest) => {
                write!(f, "({first}")?;
                for (operator, operand) in rest {
                    write!(f, " {} {operand}", operator.sign())?;
                }
                f.write_str(")")
            }
            Self::And(operands) => joined(f, operands, " AND "),
            Self::Or(operands) => joined(f, operands, " OR "),
            Self::Between(three) => {
                write!(f, "({} BETWEEN {} AND {})", three[0], three[1], three[2])
            }
            Self::In(value, items) => {
                write!(f, "({value} IN (")?;
                comma(f, items)?;
                f.write_str("))")
            }
            Self::Like(two, escape) => {
                write!(f, "({} LIKE {}", two[0], two[1])?;
                if let Some(escape) = escape {
                    write!(f, " ESCAPE {}", Quoted(&escape.to_string()))?;
                }
                f.write_str(")")
            }
            Self::Conditional(three) => write!(f, "({} ? {} : {})", three[0], three[1], three[2]),
            Self::Call(function, arguments) => {
                write!(f, "{}(", function.name())?;
                comma(f, arguments)?;
                f.write_str(")")
            }
            Self::Aggregate(aggregate, of) => write!(f, "{aggregate:?}({of})"),
        }
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    one: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        one(f, item)?;
    }
    Ok(())
}

fn joined(f: &mut fmt::Formatter<'_>, operands: &[Expr], between: &str) -> fmt::Result {
    for (at, operand) in operands.iter().enumerate() {
        write!(f, "{}{operand}", if at == 0 { "(" } else { between })?;
    }
    f.write_str(")")
}

struct Steps<'a>(&'a [Step]);

impl fmt::Display for Steps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| match step {
            Step::Member(name) => write!(f, "[{}]", Quoted(name)),
            Step::Element(at) => write!(f, "[{at}]"),
        })
    }
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        escape::write(self.0, &mut out);
        f.write_str(&out)
    }
}
