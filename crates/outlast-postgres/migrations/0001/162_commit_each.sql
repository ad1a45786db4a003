-- Commits turns that do something beyond their own runs, one by one in their order; see `commit_beyond`. What
-- belongs to each is a part of the columns: so many tags, children, tags of those, and messages. All rows that
-- change are locked first, in order of their ids, so that nobody waits in a circle.
CREATE FUNCTION {schema}.commit_each(
    session_ text, at_ bigint, exclusive_ boolean, run_ text[], id_ text[], from_ text[], seq_ bigint[],
    next_seq_ bigint[], turn_at_ bigint[], build_ text[], events_ text[], consumed_ bigint[],
    fired_until_ bigint[], then_ text[], clears_deadline_ boolean[], invalid_ boolean[], wake_at_ bigint[],
    waits_ text[], stuck_reason_ text[], stuck_message_ text[], stuck_build_ text[], format_ integer,
    born_ bigint[], workflow_ text[], version_ bigint[], queue_ text[], priority_ smallint[], key_ text[],
    digest_ text[], window_ bigint[], parent_ text[], parent_op_ bigint[], parent_awaits_ boolean[],
    root_ text[], deadline_ bigint[], tag_name_ text[], tag_value_ text[], child_run_ text[],
    child_turn_ text[], child_born_ bigint[], child_workflow_ text[], child_version_ bigint[],
    child_queue_ text[], child_priority_ smallint[], child_key_ text[], child_digest_ text[],
    child_window_ bigint[], child_events_ text[], child_op_ bigint[], child_awaits_ boolean[],
    child_root_ text[], child_parent_ text[], child_not_before_ bigint[], child_deadline_ bigint[],
    child_tag_of_ integer[], child_tag_name_ text[], child_tag_value_ text[], child_answer_ text[],
    child_asks_ boolean[], told_refused_ text[], told_other_ text[], told_taken_ text[],
    told_foreign_ text[], mark_run_ text, mark_workflow_ text, message_run_ text[], message_id_ text[],
    message_kind_ text[], message_name_ text[], message_op_ bigint[], message_outcome_ text[],
    message_codec_ text[], message_body_ text[], message_raw_ bytea[], message_headers_ text[],
    message_limit_ bigint[], message_codeless_ text[], tags_ integer[], children_ integer[],
    child_tags_ integer[], messages_ integer[]
) RETURNS TABLE (nth integer, code text, detail text, moment bigint, rings boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint;
    tag_from_ integer; tag_until_ integer := 0;
    child_from_ integer; child_until_ integer := 0;
    child_tag_from_ integer; child_tag_until_ integer := 0;
    message_from_ integer; message_until_ integer := 0;
BEGIN
    IF exclusive_ THEN
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR UPDATE;
    ELSE
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR KEY SHARE;
    END IF;
    PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (run_ || message_run_) ORDER BY r.id FOR NO KEY UPDATE;
    now_ := coalesce(at_, {schema}.clock());
    FOR k IN 1..cardinality(run_) LOOP
        tag_from_ := tag_until_ + 1; tag_until_ := tag_until_ + tags_[k];
        child_from_ := child_until_ + 1; child_until_ := child_until_ + children_[k];
        child_tag_from_ := child_tag_until_ + 1; child_tag_until_ := child_tag_until_ + child_tags_[k];
        message_from_ := message_until_ + 1; message_until_ := message_until_ + messages_[k];
        RETURN QUERY SELECT CASE WHEN c.nth = 0 THEN 0 ELSE k END, c.code, c.detail, c.moment, c.rings
        FROM {schema}.commit_beyond(
            session_, now_, exclusive_, run_[k], id_[k], from_[k], seq_[k], next_seq_[k], turn_at_[k],
            build_[k], events_[k], consumed_[k], fired_until_[k], then_[k], clears_deadline_[k], invalid_[k],
            wake_at_[k], waits_[k], stuck_reason_[k], stuck_message_[k], stuck_build_[k], format_, born_[k],
            workflow_[k], version_[k], queue_[k], priority_[k], key_[k], digest_[k], window_[k], parent_[k],
            parent_op_[k], parent_awaits_[k], root_[k], deadline_[k], tag_name_[tag_from_:tag_until_],
            tag_value_[tag_from_:tag_until_], child_run_[child_from_:child_until_],
            child_turn_[child_from_:child_until_], child_born_[child_from_:child_until_],
            child_workflow_[child_from_:child_until_], child_version_[child_from_:child_until_],
            child_queue_[child_from_:child_until_], child_priority_[child_from_:child_until_],
            child_key_[child_from_:child_until_], child_digest_[child_from_:child_until_],
            child_window_[child_from_:child_until_], child_events_[child_from_:child_until_],
            child_op_[child_from_:child_until_], child_awaits_[child_from_:child_until_],
            child_root_[child_from_:child_until_], child_parent_[child_from_:child_until_],
            child_not_before_[child_from_:child_until_], child_deadline_[child_from_:child_until_],
            child_tag_of_[child_tag_from_:child_tag_until_],
            child_tag_name_[child_tag_from_:child_tag_until_],
            child_tag_value_[child_tag_from_:child_tag_until_], child_answer_[child_from_:child_until_],
            child_asks_[child_from_:child_until_], told_refused_[child_from_:child_until_],
            told_other_[child_from_:child_until_], told_taken_[child_from_:child_until_],
            told_foreign_[child_from_:child_until_], mark_run_, mark_workflow_,
            message_run_[message_from_:message_until_], message_id_[message_from_:message_until_],
            message_kind_[message_from_:message_until_], message_name_[message_from_:message_until_],
            message_op_[message_from_:message_until_], message_outcome_[message_from_:message_until_],
            message_codec_[message_from_:message_until_], message_body_[message_from_:message_until_],
            message_raw_[message_from_:message_until_], message_headers_[message_from_:message_until_],
            message_limit_[message_from_:message_until_], message_codeless_[message_from_:message_until_]) c;
    END LOOP;
END
$$
