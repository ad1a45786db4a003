//! What is read of a text that this build did not write.

use expect_test::expect;

use super::*;

#[test]
fn an_unknown_field_is_ignored() {
    for event in all_examples() {
        let text = written(std::slice::from_ref(&event));
        let first = text.replacen("{\"kind\"", "{\"since\":{\"v\":[9]},\"kind\"", 1);
        let last = format!("{},\"until\":\"x\"}}]", &text[..text.len() - 2]);
        for text in [first, last] {
            assert_eq!(Event::read_all(&text).unwrap(), std::slice::from_ref(&event), "{text}");
        }
    }
}

#[test]
fn an_unknown_kind_is_an_error_that_names_it() {
    for text in [
        r#"[{"kind":"signal_sent","op":0}]"#,
        r#"[{"kind":"timer_fired","op":0},{"kind":"signal_sent"}]"#,
        // A later kind may give the fields of today another type.
        r#"[{"kind":"signal_sent","op":"first","message":"hello","failure":7}]"#,
    ] {
        let error = Event::read_all(text).unwrap_err();
        assert_eq!(error, EventError::UnknownKind("signal_sent".into()), "{text}");
        assert!(error.to_string().contains("`signal_sent`"), "{error}");
    }
}

#[test]
fn damaged_text_is_an_error_and_not_another_event() {
    let coded = r#"[{"kind":"run_completed","codec":"aes","output":"OUTPUT"}]"#;
    assert!(Event::read_all(&coded.replace("OUTPUT", "00ff")).is_ok());
    let mut report = String::new();
    for text in [
        "",
        "{}",
        "[{}]",
        r#"[{"kind":"timer_fired","op":-1}]"#,
        r#"[{"kind":"timer_fired","op":0}"#,
        r#"[{"kind":"cancel_requested","message":"run_00000000000000000000000001","reason":""}]"#,
        r#"[{"kind":"run_failed","failure":{"kind":"tired","message":""}}]"#,
        &coded.replace("OUTPUT", "00f"),
        &coded.replace("OUTPUT", "0x"),
        &coded.replace("OUTPUT", "+1+2"),
        &coded.replace("\"OUTPUT\"", "1234"),
    ] {
        let error = Event::read_all(text).expect_err(text);
        assert!(matches!(error, EventError::Damaged(_)), "{text}: {error}");
        report += &format!("{error}\n");
    }
    expect![[r#"
        a stored event is damaged: EOF while parsing a value at line 1 column 0
        a stored event is damaged: invalid type: map, expected a sequence at line 1 column 0
        a stored event is damaged: missing field `kind` at line 1 column 3
        a stored event is damaged: invalid value: integer `-1`, expected u64 at line 1 column 30
        a stored event is damaged: EOF while parsing a list at line 1 column 30
        a stored event is damaged: `run_00000000000000000000000001` is not an id; expected `msg_` and 26 characters of 0-9 and A-Z without I, L, O and U at line 1 column 70
        a stored event is damaged: unknown variant `tired`, expected one of `error`, `fatal`, `panic`, `timeout`, `cancelled`, `limit`, `invalid`, `conflict`, `unknown`, `maybe_attempted` at line 1 column 47
        a stored event is damaged: `output` of `run_completed` is not hexadecimal
        a stored event is damaged: `output` of `run_completed` is not hexadecimal
        a stored event is damaged: `output` of `run_completed` is not hexadecimal
        a stored event is damaged: `output` of `run_completed` is not hexadecimal
    "#]].assert_eq(&report);
}

#[test]
fn a_missing_field_is_an_error_that_names_it() {
    let mut required = std::collections::BTreeMap::<&str, std::collections::BTreeSet<String>>::new();
    for event in all_examples() {
        let whole: Value = serde_json::from_str(&written(std::slice::from_ref(&event))).unwrap();
        let fields: Vec<String> = whole[0].as_object().unwrap().keys().cloned().collect();
        for field in fields.iter().filter(|field| *field != "kind") {
            let mut cut = whole.clone();
            cut[0].as_object_mut().unwrap().remove(field);
            let Err(error) = Event::read_all(&cut.to_string()) else { continue };
            // A recorded value is there, or the failure that stands for it.
            let missing = match (&**field, event.kind()) {
                ("failure", "value_recorded" | "iteration_ended") => "value",
                // The step that it undoes, or its input.
                ("failure" | "of", "compensation_registered") => "input",
                (field, _) => field,
            };
            let text = format!("event `{}` has no field `{missing}`", event.kind());
            assert_eq!(error.to_string(), text);
            required.entry(event.kind()).or_default().insert(missing.to_owned());
        }
    }
    let report: String = required.iter().map(|(kind, fields)| format!("{kind}: {fields:?}\n")).collect();
    expect![[r#"
        cancel_requested: {"reason"}
        child_cancelled: {"failure", "op"}
        child_completed: {"op", "output"}
        child_detached: {"op", "run"}
        child_dropped: {"op"}
        child_failed: {"failure", "op"}
        child_started: {"input", "on_parent_end", "op", "run", "version", "workflow"}
        compensation_registered: {"input", "name", "op"}
        compensation_started: {"of", "op", "run"}
        compensations_kept: {"op"}
        hook_closed: {"op"}
        hook_opened: {"name", "op"}
        hook_received: {"message", "name", "payload"}
        hook_rejected: {"message", "name", "reason"}
        hook_taken: {"message", "op"}
        iteration_ended: {"iteration", "of", "op", "value"}
        loop_started: {"name", "op"}
        operation_cancelled: {"op"}
        reply_dropped: {"message"}
        reply_sent: {"message", "op", "payload"}
        run_cancelled: {"failure"}
        run_compensating: {"ends_as", "failure"}
        run_completed: {"output"}
        run_continued: {"generation", "input", "next_op", "parent_op", "root", "skips_from", "version", "workflow"}
        run_failed: {"failure"}
        run_forked: {"next_op", "run"}
        run_retried: {"from", "message", "next_op", "reopens"}
        run_retrying: {"attempt", "failure", "retry_at"}
        run_started: {"input", "parent_op", "root", "version", "workflow"}
        run_terminated: {"failure"}
        step_completed: {"op", "output"}
        step_dropped: {"op"}
        step_failed: {"failure", "op"}
        step_retried: {"attempt", "failure", "op", "retry_at"}
        step_started: {"input", "name", "op", "run"}
        tags_set: {"op", "tags"}
        timer_cancelled: {"op"}
        timer_fired: {"op"}
        timer_started: {"fire_at", "op"}
        timer_woken: {"message"}
        token_closed: {"op"}
        token_refused: {"failure", "op"}
        token_requested: {"name", "op", "token"}
        token_taken: {"op"}
        value_recorded: {"name", "op", "value"}
        version_chosen: {"name"}
    "#]]
    .assert_eq(&report);
}
