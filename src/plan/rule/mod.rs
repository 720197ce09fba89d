//! Rewrites: what the streaming plan gains beyond DataFusion's own rules.
//!
//! A rule looks at a whole plan and gives another one that computes the same, row errors included: **no rule moves an
//! expression that can fail across an operator that decides which rows it sees.** The rules run in order, again and
//! again, until none of them changes anything. To add one: its file, and a line in [`RULES`].

mod distinct;
mod filter;
mod fuse;
mod growing;
mod prune;

use super::{NodeId, Plan};
use crate::error::Result;

/// Rewrites the plan with that root: the new plan and its root; `None` if there is nothing to change.
pub type Apply = fn(&Plan, NodeId) -> Result<Option<(Plan, NodeId)>>;

/// One rewrite.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// The rewrite.
    pub apply: Apply,
}

/// All rules, in the order in which they run.
pub const RULES: &[Rule] = &[
    Rule {
        name: "fuse maps",
        summary: "A map or filter over another one becomes one; a map that changes nothing goes away.",
        apply: fuse::apply,
    },
    Rule {
        name: "push filters",
        summary: "A filter that cannot fail goes below what it does not depend on, so that less is kept and computed.",
        apply: filter::apply,
    },
    Rule {
        name: "distinct of distinct",
        summary: "Rows that are never there twice need not be made distinct.",
        apply: distinct::apply,
    },
    Rule {
        name: "keep no values",
        summary: "The least, the greatest and the first of rows that are only ever added need no other row than the result.",
        apply: growing::apply,
    },
    Rule {
        name: "prune columns",
        summary: "Columns that nobody reads are dropped where they come from, so that no state holds them.",
        apply: prune::apply,
    },
];

/// The rounds after which rules stop, come what may: a bound, not an expectation.
const ROUNDS_MAX: usize = 32;

/// One use of a rule.
#[derive(Debug, Clone)]
pub struct Firing {
    /// The rule's name.
    pub rule: &'static str,
    /// The plan before it, as EXPLAIN shows it.
    pub before: String,
    /// The plan after it.
    pub after: String,
}

/// A plan and how it came about.
#[derive(Debug, Clone)]
pub struct Rewritten {
    /// The plan.
    pub plan: Plan,
    /// Its root.
    pub root: NodeId,
    /// The rules that changed it, in order.
    pub firings: Vec<Firing>,
}

/// Runs the rules until none of them changes anything.
pub fn rewrite(plan: &Plan, root: NodeId) -> Result<Rewritten> {
    let (plan, root) = plan.compact(root)?;
    let mut rewritten = Rewritten {
        plan,
        root,
        firings: Vec::new(),
    };
    for _ in 0..ROUNDS_MAX {
        let before = rewritten.firings.len();
        for rule in RULES {
            let Some((plan, root)) = (rule.apply)(&rewritten.plan, rewritten.root)? else {
                continue;
            };
            let (plan, root) = plan.compact(root)?;
            if root == rewritten.root && plan.nodes == rewritten.plan.nodes {
                continue;
            }
            rewritten.firings.push(Firing {
                rule: rule.name,
                before: super::explain::text(&rewritten.plan, rewritten.root),
                after: super::explain::text(&plan, root),
            });
            (rewritten.plan, rewritten.root) = (plan, root);
        }
        if rewritten.firings.len() == before {
            break;
        }
    }
    Ok(rewritten)
}

/// How many users each node has, by id; the root has one more.
fn users(plan: &Plan, root: NodeId) -> Vec<usize> {
    let mut users = vec![0; plan.nodes.len()];
    for id in plan.reachable(root) {
        for input in plan.inputs(id) {
            users[input.0] += 1;
        }
    }
    users[root.0] += 1;
    users
}

#[cfg(test)]
pub(super) mod tests;
