//! From a query and its parameters to a plan.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use serde_json::Value as Json;

use super::ast::{Aggregate, Count, Expr, Literal, Projection, Select, Source, Step, Unary};
use super::eval::{Constant, MAX_VALUE_BYTES, Node, Property, Row, int32};
use super::function::Function;
use super::like::{self, Pattern};
use super::parser::Parsed;
use super::scan::Paths;
use super::value::{Tree, Value};
use super::{Error, Result, refused};

/// How a query is run.
#[derive(Debug)]
pub(super) struct Plan {
    pub paths: Paths,
    pub source: Option<Source>,
    pub filter: Option<Node>,
    pub output: Output,
    pub distinct: bool,
    pub group: Vec<Node>,
    pub aggregates: Vec<(Aggregate, Node)>,
    /// With whether it descends.
    pub order: Vec<(Node, bool)>,
    pub top: Option<u64>,
    pub offset: u64,
    pub limit: u64,
}

#[derive(Debug)]
pub(super) enum Output {
    All,
    Value(Node),
    Object(Vec<(String, Node)>),
}

impl Plan {
    /// Whether one row is made of many documents.
    pub(super) fn is_grouped(&self) -> bool {
        !self.group.is_empty() || !self.aggregates.is_empty()
    }

    /// Whether each source is a whole document.
    pub(super) fn reads_documents(&self) -> bool {
        let whole = |source: &Source| source.path.is_empty() && !source.iterates;
        self.source.as_ref().is_some_and(whole)
    }
}

pub(super) fn compile(parsed: Parsed, parameters: &[(String, Json)]) -> Result<Plan> {
    let Parsed {
        select,
        parameters: used,
        projection_at,
    } = parsed;
    let parameters = bind(&used, parameters)?;
    let whole = |source: &Source| source.path.is_empty() && !source.iterates;
    let mut compiler = Compiler {
        parameters: &parameters,
        documents: select.source.as_ref().is_some_and(whole),
        paths: Paths::default(),
        group: &[],
        grouped: None,
        aggregates: vec![],
    };
    let filter = select.filter.as_ref().map(|filter| compiler.node(filter));
    let filter = filter.transpose()?;
    let group = compiler.nodes(&select.group)?;
    let order = match aggregates_without_group(&select) {
        // One row needs no order.
        true => vec![],
        false => compiler.order(&select)?,
    };
    if !select.group.is_empty() || has_aggregate(&select.projection) {
        compiler.group = &select.group;
        compiler.grouped = Some(projection_at);
    }
    let output = compiler.output(&select.projection)?;
    let (paths, aggregates) = (compiler.paths, compiler.aggregates);
    let count = |count: &Count| match count {
        Count::Literal(count) => Ok(*count),
        Count::Parameter(name) => parameters[name.as_str()]
            .as_u64()
            .ok_or_else(|| Error::bad_request(format!("the parameter {name} is no count"))),
    };
    let top = select.top.as_ref().map(count).transpose()?;
    let (offset, limit) = match &select.window {
        Some((offset, limit)) => (count(offset)?, count(limit)?),
        None => (0, top.unwrap_or(u64::MAX)),
    };
    Ok(Plan {
        paths,
        source: select.source,
        filter,
        output,
        distinct: select.distinct,
        group,
        aggregates,
        order,
        top,
        offset,
        limit,
    })
}

fn bind<'a>(
    used: &'a [(String, usize)],
    given: &'a [(String, Json)],
) -> Result<HashMap<&'a str, &'a Json>> {
    let given: HashMap<&str, &Json> = given.iter().map(|(name, value)| (&**name, value)).collect();
    let bound = used.iter().map(|(name, at)| {
        // Some clients leave the `@` out.
        let value = given.get(&**name).or_else(|| given.get(&name[1..]));
        let value = value.ok_or_else(|| refused(*at, format!("the parameter {name} has no value")));
        Ok((&**name, *value?))
    });
    bound.collect()
}

fn aggregates_without_group(select: &Select) -> bool {
    select.group.is_empty() && has_aggregate(&select.projection)
}

fn has_aggregate(projection: &Projection) -> bool {
    fn in_expr(expr: &Expr) -> bool {
        match expr {
            Expr::Aggregate(..) => true,
            Expr::Literal(_) | Expr::Parameter(_) | Expr::Path(_) => false,
            Expr::Index(base, _) => in_expr(base),
            Expr::Array(many) | Expr::And(many) | Expr::Or(many) | Expr::Call(_, many) => {
                many.iter().any(in_expr)
            }
            Expr::Object(members) => members.iter().any(|(_, member)| in_expr(member)),
            Expr::Unary(_, of) => in_expr(of),
            Expr::Chain(first, rest) => {
                in_expr(first) || rest.iter().any(|(_, operand)| in_expr(operand))
            }
            Expr::Between(three) | Expr::Conditional(three) => three.iter().any(in_expr),
            Expr::In(value, items) => in_expr(value) || items.iter().any(in_expr),
            Expr::Like(two, _) => two.iter().any(in_expr),
        }
    }
    match projection {
        Projection::All => false,
        Projection::Value(expr) => in_expr(expr),
        Projection::List(items) => items.iter().any(|(expr, _)| in_expr(expr)),
    }
}

struct Compiler<'a> {
    parameters: &'a HashMap<&'a str, &'a Json>,
    /// Whether the source is a whole document, which has the system's properties.
    documents: bool,
    paths: Paths,
    group: &'a [Expr],
    /// Where one row is made of many documents, which have no path in common: the position of what is selected.
    grouped: Option<usize>,
    aggregates: Vec<(Aggregate, Node)>,
}

/// From here on constants of IN are a set.
const SET_ITEMS: usize = 8;

impl Compiler<'_> {
    fn output(&mut self, projection: &Projection) -> Result<Output> {
        Ok(match (projection, self.grouped) {
            (Projection::All, Some(at)) => {
                return Err(refused(at, "SELECT * does not go with GROUP BY"));
            }
            (Projection::All, None) => Output::All,
            (Projection::Value(Expr::Path(path)), None) if path.is_empty() => Output::All,
            (Projection::Value(expr), _) => Output::Value(self.node(expr)?),
            (Projection::List(items), _) => {
                let members = items
                    .iter()
                    .map(|(expr, name)| Ok((name.clone(), self.node(expr)?)));
                Output::Object(members.collect::<Result<_>>()?)
            }
        })
    }

    fn order(&mut self, select: &Select) -> Result<Vec<(Node, bool)>> {
        let keys = select
            .order
            .iter()
            .map(|key| Ok((self.node(&key.expr)?, key.descending)));
        keys.collect()
    }

    fn nodes(&mut self, exprs: &[Expr]) -> Result<Vec<Node>> {
        exprs.iter().map(|expr| self.node(expr)).collect()
    }

    fn boxed(&mut self, expr: &Expr) -> Result<Box<Node>> {
        self.node(expr).map(Box::new)
    }

    fn three(&mut self, exprs: &[Expr; 3]) -> Result<Box<[Node; 3]>> {
        let [one, two, three] = exprs;
        Ok(Box::new([
            self.node(one)?,
            self.node(two)?,
            self.node(three)?,
        ]))
    }

    fn node(&mut self, expr: &Expr) -> Result<Node> {
        if self.grouped.is_some()
            && let Some(at) = self.group.iter().position(|key| key == expr)
        {
            return Ok(Node::Group(at));
        }
        let node = match expr {
            Expr::Literal(literal) => return Ok(Node::Constant(of_literal(literal))),
            Expr::Parameter(name) => {
                let text = self.parameters[name.as_str()].to_string();
                return Ok(Node::Constant(Constant::of(&Value::read(&text))));
            }
            Expr::Path(path) => return self.path(path),
            Expr::Aggregate(aggregate, of) => return self.aggregate(*aggregate, of),
            Expr::Index(base, steps) => Node::Index(self.boxed(base)?, self.nodes(steps)?),
            Expr::Array(elements) => Node::Array(self.nodes(elements)?),
            Expr::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, of)| Ok((name.clone(), self.node(of)?)));
                Node::Object(members.collect::<Result<_>>()?)
            }
            Expr::Unary(operator, of) => self.unary(*operator, of)?,
            Expr::Chain(first, rest) => {
                let first = self.boxed(first)?;
                let rest = rest
                    .iter()
                    .map(|(operator, of)| Ok((*operator, self.node(of)?)));
                Node::Chain(first, rest.collect::<Result<_>>()?)
            }
            Expr::And(operands) => Node::And(self.nodes(operands)?),
            Expr::Or(operands) => Node::Or(self.nodes(operands)?),
            Expr::Between(three) => Node::Between(self.three(three)?),
            Expr::In(value, items) => self.is_in(value, items)?,
            Expr::Like(two, escape) => {
                let (value, pattern) = (self.boxed(&two[0])?, self.boxed(&two[1])?);
                Node::Like(value, pattern_of(pattern, *escape))
            }
            Expr::Conditional(three) => Node::Conditional(self.three(three)?),
            Expr::Call(function, arguments) => called(*function, self.nodes(arguments)?),
        };
        folded(node)
    }

    fn path(&mut self, path: &[Step]) -> Result<Node> {
        if let Some(at) = self.grouped {
            let path = Expr::Path(path.to_vec());
            let error = format!(
                "{path} (r is the source) is neither a key of GROUP BY nor in an aggregate"
            );
            return Err(refused(at, error));
        }
        if path.is_empty() {
            return Ok(Node::Whole);
        }
        let property = match &path[0] {
            Step::Member(name) if self.documents => property(name),
            _ => None,
        };
        Ok(match property {
            Some(property) if path.len() == 1 => Node::System(property),
            // None of them has members.
            Some(_) => Node::Constant(Constant::Undefined),
            None => Node::Slot(self.paths.add(path)),
        })
    }

    fn aggregate(&mut self, aggregate: Aggregate, of: &Expr) -> Result<Node> {
        let grouped = self.grouped.take();
        let of = self.node(of);
        self.grouped = grouped;
        self.aggregates.push((aggregate, of?));
        Ok(Node::Result(self.aggregates.len() - 1))
    }

    fn unary(&mut self, operator: Unary, of: &Expr) -> Result<Node> {
        let of = self.boxed(of)?;
        Ok(match operator {
            Unary::Not => Node::Not(of),
            Unary::Minus => Node::Number(|value| -value, of),
            Unary::Plus => Node::Number(|value| value, of),
            Unary::Complement => Node::Number(|value| f64::from(!int32(value)), of),
        })
    }

    fn is_in(&mut self, value: &Expr, items: &[Expr]) -> Result<Node> {
        let (value, items) = (self.boxed(value)?, self.nodes(items)?);
        if items.len() < SET_ITEMS || !items.iter().all(Node::is_constant) {
            return Ok(Node::In(value, items));
        }
        let constants = items.iter().filter_map(|item| match item {
            // An item that is undefined equals nothing.
            Node::Constant(constant) => constant.value().tree(),
            _ => None,
        });
        Ok(Node::InSet(value, constants.collect()))
    }
}

fn of_literal(literal: &Literal) -> Constant {
    match literal {
        Literal::Undefined => Constant::Undefined,
        Literal::Null => Constant::Null,
        Literal::Bool(value) => Constant::Bool(*value),
        Literal::Number(text) => Constant::of(&Value::read(text)),
        Literal::String(text) => Constant::String(text.clone()),
    }
}

fn property(name: &str) -> Option<Property> {
    Some(match name {
        "_rid" => Property::Rid,
        "_self" => Property::SelfLink,
        "_etag" => Property::Etag,
        "_attachments" => Property::Attachments,
        "_ts" => Property::Ts,
        _ => return None,
    })
}

/// A constant array that is searched for a whole value is a set.
fn called(function: Function, mut arguments: Vec<Node>) -> Node {
    if function == Function::ArrayContains
        && let [Node::Constant(Constant::Nested(array)), _] = &arguments[..]
        && let Some(Tree::Array(elements)) = Tree::parse(array)
    {
        return Node::InSet(
            Box::new(arguments.remove(1)),
            elements.into_iter().collect(),
        );
    }
    Node::Call(function, arguments)
}

fn pattern_of(pattern: Box<Node>, escape: Option<char>) -> Pattern {
    match &*pattern {
        Node::Constant(Constant::String(text)) => Pattern::Fixed(like::parts(text, escape)),
        _ => Pattern::Of(pattern, escape),
    }
}

/// Computes once a node that depends on no document.
fn folded(node: Node) -> Result<Node> {
    let constant = |nodes: &[Node]| nodes.iter().all(Node::is_constant);
    let foldable = match &node {
        Node::Index(base, steps) => base.is_constant() && constant(steps),
        Node::Array(nodes) | Node::And(nodes) | Node::Or(nodes) => constant(nodes),
        Node::Object(members) => members.iter().all(|(_, member)| member.is_constant()),
        Node::Not(of) | Node::Number(_, of) | Node::InSet(of, _) => of.is_constant(),
        Node::Chain(first, rest) => {
            first.is_constant() && rest.iter().all(|(_, operand)| operand.is_constant())
        }
        Node::Between(three) | Node::Conditional(three) => constant(&**three),
        Node::In(value, items) => value.is_constant() && constant(items),
        Node::Like(value, pattern) => value.is_constant() && matches!(pattern, Pattern::Fixed(_)),
        Node::Call(function, arguments) => !function.asks_the_time() && constant(arguments),
        _ => false,
    };
    if !foldable {
        return Ok(node);
    }
    let row = Row::new("", &[], UNIX_EPOCH);
    let folded = Constant::of(&node.value(&row));
    match row.is_too_long() {
        true => Err(too_long()),
        false => Ok(Node::Constant(folded)),
    }
}

pub(super) fn too_long() -> Error {
    let error = format!("a value that the query makes has more than {MAX_VALUE_BYTES} bytes");
    Error::bad_request(error)
}
