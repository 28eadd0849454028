//! Patches: operations on the text of a document, of which all that they do not name stays as it is.

use std::ops::Range;
use std::time::SystemTime;

use serde_json::value::RawValue;

use crate::body::{SYSTEM, broken, utf8};
use crate::document::Document;
use crate::error::{Error, ErrorKind, Result};
use crate::json::{self, Member};

/// A patch has up to this many operations.
const MAX_OPERATIONS: usize = 10;

/// One operation of a patch. Paths are JSON pointers, as `/tags/0`; `/-` behind an array is its end.
#[derive(Clone, Debug)]
pub enum PatchOperation {
    /// Puts a member, over one that is there, or an element before the one at its place.
    Add(String, Box<RawValue>),
    /// Puts a member or an element, over one that is there.
    Set(String, Box<RawValue>),
    /// Puts a member or an element over one that has to be there.
    Replace(String, Box<RawValue>),
    /// Removes a member or an element, which has to be there.
    Remove(String),
    /// Adds to a number, or puts it where there is none.
    Increment(String, Box<RawValue>),
    /// Moves a value, which has to be there, as if it were removed and then added.
    Move {
        /// The place that it has.
        from: String,
        /// The place that it gets.
        path: String,
    },
}

/// 1 to 10 operations on a document, and a condition.
///
/// ```
/// use ebbtide_documents::{Conditions, ContainerDefinition, Documents, Patch};
///
/// let documents = Documents::with(ebbtide::Options::temporary()?)?;
/// documents.create_database("shop")?;
/// let stock = documents.create_container("shop", ContainerDefinition::new("stock", "/id"))?;
/// stock.create(&"tea".into(), br#"{"id":"tea","left":2,"price":1.50}"#)?;
/// let sell = Patch::from_json(br#"[{"op":"incr","path":"/left","value":-1}]"#)?.with_condition("FROM c WHERE c.left > 0");
/// let sold = stock.patch(&"tea".into(), "tea", &sell, &Conditions::none())?;
/// assert_eq!(sold.body(), br#"{"id":"tea","left":1,"price":1.50}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Patch {
    /// In the order in which they are done.
    pub operations: Vec<PatchOperation>,
    /// `FROM c WHERE ...`: the patch is done to a document for which this is true.
    pub condition: Option<String>,
}

impl Patch {
    /// From the body of a request: `{"operations":[{"op":"add","path":"/a","value":1}],"condition":"from c where c.b = 2"}`,
    /// or the array of operations alone.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn from_json(json: &[u8]) -> Result<Patch> {
        let text = utf8(json)?;
        let (mut operations, mut condition) = (None, None);
        if text.trim_start().starts_with('{') {
            let each = |member: Member<'_>| match &*member.name {
                "operations" => operations = Some(member.value.to_owned()),
                "condition" => condition = Some(member.value.to_owned()),
                _ => {}
            };
            json::document(text, each).map_err(|at| broken(text, at))?;
        } else {
            operations = Some(text.to_owned());
        }
        let operations = operations.as_deref().unwrap_or("[]");
        let elements = json::elements(operations).map_err(|at| broken(operations, at))?;
        let elements = elements
            .ok_or_else(|| Error::bad_request("The operations of a patch are an array."))?;
        let condition = condition
            .filter(|condition| condition != "null")
            .map(|condition| {
                let text = json::string(&condition).map(std::borrow::Cow::into_owned);
                text.ok_or_else(|| Error::bad_request("The condition of a patch is a string."))
            });
        let patch = Patch {
            operations: elements
                .into_iter()
                .map(PatchOperation::from_text)
                .collect::<Result<_>>()?,
            condition: condition.transpose()?,
        };
        patch.check()?;
        Ok(patch)
    }

    /// The same with a condition.
    #[must_use]
    pub fn with_condition(self, condition: impl Into<String>) -> Patch {
        let condition = Some(condition.into());
        Patch { condition, ..self }
    }

    /// The bytes of its values.
    pub(crate) fn len(&self) -> usize {
        let len = |operation: &PatchOperation| match operation {
            PatchOperation::Add(_, value)
            | PatchOperation::Set(_, value)
            | PatchOperation::Replace(_, value)
            | PatchOperation::Increment(_, value) => value.get().len(),
            PatchOperation::Remove(_) | PatchOperation::Move { .. } => 0,
        };
        self.operations.iter().map(len).sum()
    }

    /// Fails where no document may be patched so.
    pub(crate) fn check(&self) -> Result<()> {
        if self.operations.is_empty() {
            return Err(Error::bad_request("A patch has at least one operation."));
        }
        if self.operations.len() > MAX_OPERATIONS {
            let message = format!(
                "A patch has up to {MAX_OPERATIONS} operations, not {}.",
                self.operations.len()
            );
            return Err(Error::bad_request(message));
        }
        if let Some(condition) = &self.condition {
            crate::predicate::check(condition)?;
        }
        self.operations.iter().try_for_each(PatchOperation::check)
    }

    /// Fails where the condition is not true for a document.
    pub(crate) fn check_condition(&self, document: &Document, now: SystemTime) -> Result<()> {
        let Some(condition) = &self.condition else {
            return Ok(());
        };
        if crate::predicate::holds(condition, document, now)? {
            return Ok(());
        }
        let message = "One of the specified pre-condition is not met: the condition of the patch does not hold.";
        Err(Error::new(ErrorKind::PreconditionFailed, message))
    }

    /// The text of a document as the patch makes it.
    pub(crate) fn apply(&self, body: &[u8]) -> Result<String> {
        let mut text = utf8(body)?.to_owned();
        for operation in &self.operations {
            text = operation.apply(&text)?;
        }
        Ok(text)
    }
}

impl PatchOperation {
    fn from_text(text: &str) -> Result<PatchOperation> {
        let members = json::members(text)
            .ok_or_else(|| Error::bad_request("An operation of a patch is an object."))?;
        let find = |name: &str| {
            members
                .iter()
                .rfind(|member| member.name == name)
                .map(|member| member.value)
        };
        let string = |name: &str| {
            let found = find(name)
                .and_then(json::string)
                .map(std::borrow::Cow::into_owned);
            found.ok_or_else(|| {
                Error::bad_request(format!("An operation of a patch needs {name:?}, a string."))
            })
        };
        let value = || {
            let found = find("value")
                .ok_or_else(|| Error::bad_request("This operation of a patch needs \"value\"."))?;
            RawValue::from_string(found.to_owned())
                .map_err(|error| Error::bad_request(error.to_string()))
        };
        Ok(match string("op")?.to_ascii_lowercase().as_str() {
            "add" => PatchOperation::Add(string("path")?, value()?),
            "set" => PatchOperation::Set(string("path")?, value()?),
            "replace" => PatchOperation::Replace(string("path")?, value()?),
            "remove" => PatchOperation::Remove(string("path")?),
            "incr" | "increment" => PatchOperation::Increment(string("path")?, value()?),
            "move" => PatchOperation::Move {
                from: string("from")?,
                path: string("path")?,
            },
            other => {
                let message = format!(
                    "{other:?} is no operation of a patch: they are add, set, replace, remove, incr, move."
                );
                return Err(Error::bad_request(message));
            }
        })
    }

    fn check(&self) -> Result<()> {
        match self {
            PatchOperation::Add(path, value)
            | PatchOperation::Set(path, value)
            | PatchOperation::Replace(path, value) => {
                json::value(value.get()).map_err(|at| broken(value.get(), at))?;
                checked(path).map(drop)
            }
            PatchOperation::Increment(path, value) => {
                sum("0", value.get())?;
                checked(path).map(drop)
            }
            PatchOperation::Remove(path) => checked(path).map(drop),
            PatchOperation::Move { from, path } => {
                let (from_path, to_path) = (checked(from)?, checked(path)?);
                if to_path.len() > from_path.len() && to_path.starts_with(&from_path) {
                    return Err(Error::bad_request(format!(
                        "{from:?} cannot be moved into itself, to {path:?}."
                    )));
                }
                Ok(())
            }
        }
    }

    fn apply(&self, text: &str) -> Result<String> {
        let value = |value: &RawValue| value.get().trim().to_owned();
        match self {
            PatchOperation::Add(path, add) => edit(text, path, |_, is_element| {
                let put = value(add);
                Ok(if is_element {
                    Edit::Insert(put)
                } else {
                    Edit::Put(put)
                })
            }),
            PatchOperation::Set(path, set) => edit(text, path, |_, _| Ok(Edit::Put(value(set)))),
            PatchOperation::Replace(path, set) => edit(text, path, |found, _| {
                found
                    .ok_or_else(|| absent(path))
                    .map(|_| Edit::Put(value(set)))
            }),
            PatchOperation::Remove(path) => edit(text, path, |found, _| {
                found.ok_or_else(|| absent(path)).map(|_| Edit::Remove)
            }),
            PatchOperation::Increment(path, by) => {
                edit(text, path, |found, is_element| match found {
                    Some(found) => sum(found, by.get()).map(Edit::Put),
                    None if is_element => Err(absent(path)),
                    None => Ok(Edit::Put(value(by))),
                })
            }
            PatchOperation::Move { from, path } => {
                let mut moved = String::new();
                let without = edit(text, from, |found, _| {
                    moved = found.ok_or_else(|| absent(from))?.to_owned();
                    Ok(Edit::Remove)
                })?;
                edit(&without, path, |_, is_element| {
                    let put = moved.clone();
                    Ok(if is_element {
                        Edit::Insert(put)
                    } else {
                        Edit::Put(put)
                    })
                })
            }
        }
    }
}

/// The change of one place in a text.
enum Edit {
    /// Puts a value there, over one that is there.
    Put(String),
    /// Puts an element before the one that is there.
    Insert(String),
    Remove,
}

fn absent(path: &str) -> Error {
    Error::bad_request(format!(
        "For this operation of a patch, there has to be something at {path:?}; there is nothing."
    ))
}

/// The members and places of a pointer, if it may be patched.
fn checked(path: &str) -> Result<Vec<String>> {
    let wrong = || {
        Error::bad_request(format!(
            "{path:?} is no path of a patch, as /address/city or /tags/0."
        ))
    };
    let names = path.strip_prefix('/').ok_or_else(wrong)?.split('/');
    if path
        .split('~')
        .skip(1)
        .any(|rest| !rest.starts_with(['0', '1']))
    {
        return Err(wrong());
    }
    let names = names.map(|name| name.replace("~1", "/").replace("~0", "~"));
    let names: Vec<String> = names.collect();
    if names.iter().any(String::is_empty) {
        return Err(wrong());
    }
    if names[0] == "id" || SYSTEM.contains(&names[0].as_str()) {
        return Err(Error::bad_request(format!(
            "A patch cannot change {path:?}."
        )));
    }
    Ok(names)
}

/// The text with what is decided of the place at a path: of the value there, and whether it is a place of an array.
fn edit(
    text: &str,
    path: &str,
    decide: impl FnOnce(Option<&str>, bool) -> Result<Edit>,
) -> Result<String> {
    edit_within(text, &checked(path)?, path, decide)
}

fn edit_within(
    text: &str,
    names: &[String],
    path: &str,
    decide: impl FnOnce(Option<&str>, bool) -> Result<Edit>,
) -> Result<String> {
    let (name, rest) = names.split_first().expect("a path has a name");
    let places = Places::of(text).ok_or_else(|| absent(path))?;
    if rest.is_empty() {
        let place = places.find(name);
        let found = place.map(|place| &text[places.values[place].clone()]);
        return places.edited(name, place, decide(found, places.names.is_none())?, path);
    }
    let within = &places.values[places.find(name).ok_or_else(|| absent(path))?];
    let edited = edit_within(&text[within.clone()], rest, path, decide)?;
    Ok([&text[..within.start], &edited, &text[within.end..]].concat())
}

/// The members of an object, or the elements of an array, as places in its text.
struct Places<'a> {
    text: &'a str,
    /// Of an object.
    names: Option<Vec<String>>,
    wholes: Vec<Range<usize>>,
    values: Vec<Range<usize>>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str) -> Option<Places<'a>> {
        let range = |part: &str| {
            let from = part.as_ptr() as usize - text.as_ptr() as usize;
            from..from + part.len()
        };
        if let Some(elements) = json::elements(text).ok()? {
            let values: Vec<_> = elements.into_iter().map(range).collect();
            return Some(Places {
                text,
                names: None,
                wholes: values.clone(),
                values,
            });
        }
        let members = json::members(text)?;
        Some(Places {
            text,
            names: Some(
                members
                    .iter()
                    .map(|member| member.name.to_string())
                    .collect(),
            ),
            wholes: members.iter().map(|member| member.span.clone()).collect(),
            values: members.iter().map(|member| range(member.value)).collect(),
        })
    }

    /// The place of a member, the last one where several have its name, or of an element.
    fn find(&self, name: &str) -> Option<usize> {
        match &self.names {
            Some(names) => names.iter().rposition(|other| other == name),
            None => number(name).filter(|at| *at < self.values.len()),
        }
    }

    fn edited(&self, name: &str, place: Option<usize>, edit: Edit, path: &str) -> Result<String> {
        match (edit, place) {
            (Edit::Put(value), Some(place)) => Ok(self.with(self.values[place].clone(), &value)),
            (Edit::Insert(value), Some(place)) => {
                let at = self.values[place].start;
                Ok(self.with(at..at, &format!("{value},")))
            }
            (Edit::Put(value) | Edit::Insert(value), None) => {
                let value = match &self.names {
                    Some(_) => format!("{}:{value}", serde_json::Value::from(name)),
                    None if name == "-" || number(name) == Some(self.values.len()) => value,
                    None => {
                        return Err(Error::bad_request(format!(
                            "{path:?} is no place of its array."
                        )));
                    }
                };
                Ok(self.with_last(&value))
            }
            (Edit::Remove, Some(place)) => {
                let removed = self.without(place);
                // Of one name there may be several.
                let again = Places::of(&removed).filter(|places| places.names.is_some());
                match again
                    .as_ref()
                    .and_then(|places| places.find(name).map(|place| (places, place)))
                {
                    Some((places, place)) => places.edited(name, Some(place), Edit::Remove, path),
                    None => Ok(removed),
                }
            }
            (Edit::Remove, None) => Err(absent(path)),
        }
    }

    fn with(&self, range: Range<usize>, text: &str) -> String {
        [&self.text[..range.start], text, &self.text[range.end..]].concat()
    }

    fn with_last(&self, text: &str) -> String {
        match self.wholes.last() {
            Some(last) => self.with(last.end..last.end, &format!(",{text}")),
            None => {
                let begin = self.text.find(['{', '[']).map_or(0, |at| at + 1);
                self.with(begin..begin, text)
            }
        }
    }

    fn without(&self, place: usize) -> String {
        let whole = self.wholes[place].clone();
        let range = match (place.checked_sub(1), self.wholes.get(place + 1)) {
            (Some(before), _) => self.wholes[before].end..whole.end,
            (None, Some(next)) => whole.start..next.start,
            (None, None) => whole,
        };
        self.with(range, "")
    }
}

/// A place in an array.
fn number(name: &str) -> Option<usize> {
    let is_one =
        name == "0" || !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
    name.parse().ok().filter(|_| is_one)
}

/// The sum of two numbers: of whole ones, where both are and it is no longer than they may be, a whole one.
fn sum(number: &str, by: &str) -> Result<String> {
    let (number, by) = (number.trim(), by.trim());
    let whole = |text: &str| text.parse::<i64>().ok();
    if let (Some(number), Some(by)) = (whole(number), whole(by))
        && let Some(sum) = number.checked_add(by)
    {
        return Ok(sum.to_string());
    }
    let double = |text: &str| {
        let is_number =
            text.starts_with('-') || text.starts_with(|first: char| first.is_ascii_digit());
        text.parse::<f64>().ok().filter(|_| is_number)
    };
    let sum = double(number)
        .zip(double(by))
        .map(|(number, by)| number + by);
    let sum = sum
        .filter(|sum| sum.is_finite())
        .and_then(serde_json::Number::from_f64);
    let sum = sum.ok_or_else(|| {
        Error::bad_request(format!(
            "An increment adds a number to a number, not {by} to {number}."
        ))
    })?;
    Ok(sum.to_string().trim_end_matches(".0").to_owned())
}

#[cfg(test)]
mod tests;
