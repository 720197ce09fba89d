//! The bounds of window frames, as DataFusion reads them: a number or a text, without the cast that gives it its type.

use sqlparser::ast::{
    Expr, Function, NamedWindowDefinition, NamedWindowExpr, Value, ValueWithSpan, WindowFrameBound, WindowSpec,
    WindowType,
};

/// Makes the bounds of a call's own frame plain.
pub(super) fn of_call(call: &mut Function) {
    if let Some(WindowType::WindowSpec(window)) = &mut call.over {
        of_window(window);
    }
}

/// Makes the bounds of the frames of a WINDOW clause plain.
pub(super) fn of_clause(windows: &mut [NamedWindowDefinition]) {
    for NamedWindowDefinition(_, window) in windows {
        if let NamedWindowExpr::WindowSpec(window) = window {
            of_window(window);
        }
    }
}

fn of_window(window: &mut WindowSpec) {
    let Some(frame) = &mut window.window_frame else {
        return;
    };
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        if let WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset)) = bound {
            plain(offset);
        }
    }
}

fn plain(offset: &mut Expr) {
    if let Expr::Cast { expr: inner, .. } = offset
        && let Expr::Value(ValueWithSpan {
            value: Value::Number(..) | Value::SingleQuotedString(_),
            ..
        }) = inner.as_ref()
    {
        *offset = (**inner).clone();
    }
}
