//! COUNT, SUM, AVG, MIN and MAX, as far as they are after some documents.

use super::ast::Aggregate;
use super::value::{Tree, Value, number_text};

#[derive(Debug)]
pub(super) enum Running {
    Count(u64),
    /// The sum, how many there were, and whether the mean of them is asked for.
    Sum {
        sum: f64,
        count: u64,
        mean: bool,
    },
    /// The one that is least or greatest, and its text.
    Extreme {
        of: Option<(Tree, String)>,
        greatest: bool,
    },
    /// A value had a type that the aggregate does not take.
    Undefined,
}

impl Running {
    pub(super) fn new(aggregate: Aggregate) -> Self {
        let sum = |mean| Self::Sum {
            sum: 0.0,
            count: 0,
            mean,
        };
        let extreme = |greatest| Self::Extreme { of: None, greatest };
        match aggregate {
            Aggregate::Count => Self::Count(0),
            Aggregate::Sum => sum(false),
            Aggregate::Avg => sum(true),
            Aggregate::Min => extreme(false),
            Aggregate::Max => extreme(true),
        }
    }

    /// A value that is undefined counts nowhere.
    pub(super) fn add(&mut self, value: &Value<'_>) {
        if value.is_undefined() {
            return;
        }
        let fits = match self {
            Self::Count(count) => {
                *count += 1;
                true
            }
            Self::Sum { sum, count, .. } => {
                *sum += value.as_number().unwrap_or_default();
                *count += 1;
                value.as_number().is_some()
            }
            Self::Extreme { of, greatest } => {
                let scalar = !matches!(value, Value::Array(_) | Value::Object(_));
                if let Some(tree) = value.tree().filter(|_| scalar)
                    && of
                        .as_ref()
                        .is_none_or(|(known, _)| (tree > *known) == *greatest && tree != *known)
                {
                    let mut text = String::new();
                    value.write(&mut text);
                    *of = Some((tree, text));
                }
                scalar
            }
            Self::Undefined => true,
        };
        if !fits {
            *self = Self::Undefined;
        }
    }

    /// The result's text; `None` where it is undefined, as all but COUNT are of nothing.
    pub(super) fn result(&self) -> Option<String> {
        match self {
            Self::Count(count) => Some(count.to_string()),
            Self::Sum { count: 0, .. } | Self::Undefined => None,
            Self::Sum { sum, count, mean } => {
                let result = if *mean { sum / *count as f64 } else { *sum };
                result.is_finite().then(|| number_text(result))
            }
            Self::Extreme { of, .. } => of.as_ref().map(|(_, text)| text.clone()),
        }
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let held = match self {
            Self::Extreme {
                of: Some((tree, text)),
                ..
            } => tree.bytes() + text.len(),
            _ => 0,
        };
        size_of::<Self>() + held
    }
}
