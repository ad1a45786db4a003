//! The list of all cases, and the macro that generates tests from it.

/// Generates one `#[test]` for every case of the suite, each against a fresh world.
///
/// `open` is the name of an `async fn(TestClock)` that opens an empty world on that clock, as a
/// [`WorldUnderTest`](crate::suite::WorldUnderTest).
#[macro_export]
macro_rules! suite {
    ($open:ident) => {
        $crate::suite! {
            @cases $open
            starts {
                a_started_run_is_pending_and_its_history_begins,
                a_repeated_start_returns_the_first_answer,
                a_start_repeated_after_the_run_ended_changes_nothing,
                a_refused_start_leaves_its_neighbours_alone,
                a_name_past_its_limit_is_refused,
                an_unknown_run_is_not_found,
                a_turn_from_a_start_begins_a_run_that_its_session_holds,
                a_repeated_turn_from_a_start_answers_as_before,
                a_run_may_end_in_the_turn_that_starts_it,
                a_run_that_is_stuck_in_the_turn_that_starts_it_has_begun,
                a_batch_of_starts_has_a_limit,
                a_run_starts_with_the_id_that_its_world_makes,
            }
            tokens {
                one_run_gets_a_token_and_the_other_learns_who_has_it,
                a_lookup_returns_the_metadata_and_wakes_nobody,
                a_freed_token_can_be_taken_by_another_run,
                a_run_takes_its_own_token_again,
                the_token_of_an_ended_run_is_closed_and_can_be_taken,
                a_kept_token_is_taken_for_its_time,
                a_payload_for_a_token_is_accepted_while_its_run_holds_it,
                the_first_reply_to_a_message_counts,
                every_reply_is_read_back,
                replies_are_kept_for_their_time,
                a_start_that_sends_starts_or_finds_its_run,
                a_refused_message_starts_nothing,
            }
            failures {
                a_failed_run_shows_why_it_failed,
                only_a_failed_run_has_a_failure,
                failures_are_listed_by_the_time_of_their_end,
                failures_with_one_fingerprint_are_listed,
                pages_of_failures_bring_every_run_once,
            }
            flags {
                a_run_that_waits_for_an_attempt_is_retrying_until_it_is_claimed,
                a_run_is_cancelling_until_it_ends,
                runs_are_listed_and_counted_by_their_flags,
                a_list_is_filtered_by_the_time_of_the_end,
            }
            queue_counts {
                delayed_starts_do_not_hide_ready_runs,
                a_woken_run_is_ready_in_its_queue,
                held_runs_are_running_in_their_queues,
                a_stuck_run_is_not_ready,
                a_run_that_needs_no_code_is_ready_in_its_queue,
                the_oldest_of_all_groups_is_found,
                ready_runs_are_counted_up_to_a_limit,
            }
            records {
                a_record_is_stored_and_replaced,
                a_record_is_stored_only_once_if_absent,
                records_are_listed_in_the_order_of_their_ids,
                records_are_deleted,
                a_bad_record_is_refused_and_nothing_is_stored,
                a_space_has_a_limit_of_records,
            }
            runs_by_id {
                runs_are_read_by_id_in_the_given_order,
                too_many_runs_by_id_are_refused,
                a_run_counts_its_events_in_one_lookup,
                a_history_begins_with_the_turn_that_contains_an_event,
            }
            keys {
                the_same_key_returns_the_same_run,
                a_key_names_its_run_after_the_end,
                a_key_of_another_workflow_conflicts,
                a_key_with_another_input_conflicts,
                a_key_compares_digests_and_not_payloads,
                a_key_returns_its_run_to_another_version,
                keys_are_compared_exactly,
                a_start_replaces_the_run_with_its_key,
                a_replaced_run_becomes_ready,
                concurrent_starts_with_one_key_give_one_run,
                one_key_twice_in_a_batch_gives_one_run,
                a_turn_from_a_start_with_a_known_key_writes_nothing,
                a_turn_from_a_start_with_another_workflows_key_conflicts,
                a_key_past_its_limit_is_refused,
                a_key_counts_within_the_window,
                a_key_without_a_window_counts_for_ever,
                a_run_continues_without_its_key,
                a_key_past_its_window_conflicts_with_nothing,
                a_start_repeated_after_its_key_was_lost_answers_as_before,
                a_turn_and_a_child_take_a_key_past_its_window,
                a_key_held_while_running_is_free_after_the_end,
                a_turn_and_a_child_take_the_key_of_an_ended_run,
            }
            paused {
                a_paused_run_is_not_ready_until_it_is_resumed,
                a_run_that_has_not_begun_can_be_paused,
                a_paused_run_that_is_stuck_is_not_ready,
                the_deadline_makes_a_paused_run_ready,
                a_cancel_ends_a_pause,
                a_paused_run_can_be_ended_without_its_code,
                a_held_run_that_is_paused_is_not_ready_when_it_is_released,
                a_run_that_is_released_with_a_message_to_itself_stays_paused,
                a_paused_run_of_a_session_that_ended_is_not_ready,
                the_end_of_a_run_ends_its_pause,
                a_repeated_pause_changes_nothing,
                an_older_worker_has_no_paused_runs,
                runs_are_listed_and_counted_by_their_marks,
                a_pause_has_the_time_of_its_acceptance,
            }
            reopened {
                a_reopened_run_is_ready_with_its_message,
                reopening_again_with_the_same_message_changes_nothing,
                a_run_that_cannot_be_retried_is_not_reopened,
                a_waiter_receives_the_next_end,
                a_run_with_an_outbox_that_is_not_applied_is_not_reopened,
                an_older_worker_gets_no_reopened_runs,
            }
            forked {
                a_fork_has_the_turns_before_the_cut,
                forks_are_counted_and_found_by_their_tag,
                forking_again_with_the_same_id_changes_nothing,
                a_fork_copies_only_the_turns_in_its_ranges,
                a_fork_has_limited_messages,
                a_fork_outlives_the_other_run,
                a_fork_without_its_turns_is_refused,
                an_older_worker_gets_no_forks,
            }
            delete {
                a_deleted_run_is_forgotten,
                a_run_that_has_not_ended_is_not_deleted,
                a_run_in_quarantine_is_not_deleted,
                a_run_in_quarantine_continues,
                a_failing_turn_can_put_its_run_into_quarantine,
                skipped_turns_are_deleted,
            }
            history {
                a_history_is_gap_free_and_in_order,
                a_history_is_read_in_pages,
                a_turn_without_events_is_not_in_the_history,
                a_claim_brings_the_whole_history,
                a_claim_leaves_out_the_history_for_the_last_holder_alone,
                a_claim_leaves_out_a_long_history,
                histories_of_several_runs_are_read_at_once,
            }
            generations {
                a_claim_brings_only_what_a_replay_needs,
                a_claim_leaves_out_a_history_that_is_long_since_the_last_cut,
                a_run_continues_with_another_version,
                a_run_keeps_its_generation,
            }
            payloads {
                awkward_json_survives_exactly,
                coded_payloads_survive_exactly,
                a_large_payload_survives_exactly,
                headers_of_a_start_survive,
                failures_survive_exactly,
            }
            inbox {
                messages_keep_their_order,
                a_message_has_the_time_of_the_worlds_clock,
                a_repeated_message_is_kept_once,
                a_message_repeated_after_it_was_consumed_is_not_a_new_one,
                a_message_repeated_after_the_end_answers_as_before,
                a_message_to_an_ended_run_conflicts,
                a_refused_message_leaves_its_neighbours_alone,
                a_message_sent_before_anyone_waits_is_kept,
                a_message_is_consumed_by_the_commit_that_says_so,
                a_full_inbox_refuses_payloads_but_takes_a_cancel,
                a_run_that_reads_can_be_sent_more_than_an_inbox_holds,
                a_message_wakes_a_waiting_run,
                a_message_keeps_its_headers,
                a_full_inbox_takes_what_the_engine_needs,
            }
            waits {
                a_message_between_the_read_and_the_wait_is_not_lost,
                a_message_wakes_a_run_before_its_moment,
                a_run_woken_early_can_wait_for_the_same_moment,
                a_run_that_has_read_everything_waits,
                a_run_that_left_a_part_unread_is_ready_at_once,
                a_message_wakes_only_its_own_run,
                a_message_does_not_send_a_ready_run_back_in_line,
            }
            time {
                a_run_is_due_at_its_moment_and_not_before,
                a_moment_that_has_passed_makes_a_run_ready_at_once,
                a_claim_returns_when_the_next_run_is_due,
                the_next_due_time_leaves_out_runs_without_code,
                a_restart_honours_the_remaining_wait,
                the_worlds_clock_is_the_only_one,
            }
            delays {
                a_delayed_run_begins_at_its_moment,
                a_claim_returns_when_a_delayed_run_is_due,
                a_moment_that_has_come_delays_nothing,
                a_message_does_not_make_a_delayed_run_begin,
                a_delayed_run_is_ended_at_once,
                a_delayed_run_stands_in_line_by_its_moment,
                a_run_that_was_delayed_is_woken_as_any_other,
                a_repeated_delayed_start_changes_nothing,
                joins_and_takeovers_do_not_make_a_delayed_run_begin,
            }
            claim {
                a_claimed_run_is_running_and_held,
                the_longest_ready_comes_first,
                equally_ready_runs_come_in_order_of_their_ids,
                a_claim_brings_no_more_than_it_asks_for,
                a_claim_has_a_limit,
                a_claim_of_nothing_brings_only_unread_messages,
                a_worker_without_the_code_leaves_a_run_alone,
                another_version_is_other_code,
                a_claim_brings_runs_of_all_the_workers_code,
                a_worker_that_cannot_read_the_format_is_not_given_the_run,
                a_held_run_is_not_given_again,
                two_workers_never_hold_one_run,
                unread_messages_are_brought_until_they_are_consumed,
                messages_that_came_with_the_run_stay_unread,
                unread_messages_are_brought_to_the_holder_only,
            }
            preference {
                a_woken_run_is_given_to_its_last_holder_at_once,
                a_woken_run_is_given_to_others_after_the_preference,
                a_due_run_is_preferred_from_its_due_moment,
                other_sessions_get_the_due_time_after_the_preference,
                a_session_that_left_is_not_preferred,
                a_session_that_was_taken_over_is_not_preferred,
                every_session_can_claim_a_new_run,
                every_session_can_claim_a_released_run,
            }
            commit {
                a_turn_that_holds_on_keeps_the_run,
                a_turn_that_waits_releases_the_run,
                a_claimed_run_waits_for_nothing,
                a_released_run_is_ready_at_once_and_counts_no_crash,
                a_repeated_turn_answers_as_before,
                a_turn_repeated_after_it_let_go_answers_as_before,
                a_refused_turn_leaves_its_neighbours_alone,
                a_refused_turn_writes_nothing,
                a_timer_does_not_fire_over_an_answer_given_in_time,
                a_timer_fires_before_an_answer_that_came_too_late,
                the_end_is_final,
                a_run_may_end_with_unread_messages,
            }
            operation_numbers {
                large_operation_numbers_are_read_as_they_were_written,
                attempts_of_large_operation_numbers_are_told_apart,
            }
            children {
                a_child_is_started_with_its_parents_turn,
                a_child_is_started_like_any_run,
                the_last_turn_of_a_run_can_start_another_one,
                a_started_child_sends_no_message,
                a_parent_can_request_the_id_of_its_child,
                an_answer_wakes_a_parent_that_goes_to_wait_with_the_same_turn,
                an_answer_is_behind_what_the_turn_has_read,
                answers_come_in_the_order_of_the_children,
                a_refused_child_is_told_to_its_parent,
                a_child_with_another_workflows_key_is_refused,
                a_parent_learns_which_run_the_key_of_its_child_names,
                an_awaited_child_whose_key_names_a_run_is_refused,
                the_key_of_a_child_names_it,
                a_child_that_exists_counts_as_started,
                a_repeated_turn_has_its_children_once,
                a_turn_repeated_after_its_child_ended_changes_nothing,
                a_turn_that_ends_its_run_is_told_nothing,
                a_stuck_turn_does_nothing_beyond_its_run,
                a_refused_turn_does_nothing_beyond_its_run,
                a_turn_from_a_start_may_have_children,
                a_run_held_from_its_start_reads_its_answer,
                a_turn_from_a_start_that_existed_has_no_children,
                one_key_in_two_turns_of_a_call_gives_one_child,
                concurrent_children_with_one_key_are_one_run,
                a_refused_turn_leaves_its_neighbours_children_alone,
                children_and_answers_survive_a_crash,
                a_full_inbox_takes_an_answer,
                a_parent_is_kept_as_it_was_told,
            }
            outbox {
                a_message_of_a_turn_wakes_its_run,
                a_message_of_a_turn_to_a_held_run_is_unread,
                an_end_and_a_wait_in_one_call_do_not_miss_each_other,
                a_timer_does_not_fire_over_a_neighbours_message,
                a_message_of_a_turn_that_cannot_arrive_is_dropped,
                a_message_of_a_turn_arrives_once,
                the_messages_of_a_turn_keep_their_order,
                a_child_can_be_told_something_in_the_turn_that_starts_it,
                a_message_of_a_turn_does_not_free_a_stuck_run,
                a_turn_from_a_start_sends_messages,
                a_message_reaches_a_run_that_is_released_in_the_same_call,
                every_sort_of_message_survives,
                a_session_that_is_gone_sends_nothing,
                what_a_turn_does_to_others_is_done_at_once_or_by_a_delivery,
                what_the_turns_of_a_run_say_arrives_in_order,
                a_run_with_undelivered_entries_is_not_pruned,
                a_run_with_undelivered_entries_is_not_deleted,
            }
            tags {
                the_tags_of_a_start_are_on_the_run,
                tags_past_their_limits_are_refused,
                a_turn_sets_tags,
                an_old_turn_does_not_bring_its_tags_back,
                a_turn_from_a_start_sets_tags,
                tags_outlive_the_end,
                runs_are_found_by_their_tags,
                tags_are_compared_exactly,
                a_list_by_tag_is_paged,
                a_turn_with_tags_alone_is_committed,
            }
            fencing {
                a_session_that_does_not_hold_the_run_is_fenced,
                a_run_that_was_let_go_takes_no_turn,
                a_turn_on_an_old_turn_is_fenced,
                a_repeat_of_an_older_turn_is_fenced,
                a_turn_without_events_makes_older_ones_stale,
                a_session_that_left_is_fenced,
                a_session_that_was_taken_over_is_fenced,
                a_session_that_is_gone_starts_nothing,
                an_unknown_session_is_fenced,
            }
            sessions {
                the_joined_workers_are_listed,
                a_repeated_join_changes_nothing,
                a_beat_renews_the_session,
                a_session_is_told_what_it_holds,
                who_leaves_makes_its_runs_ready_without_a_crash,
                expiry_alone_changes_nothing,
                a_session_lasts_as_long_as_it_asked_for,
                a_beat_works_outside_any_runtime,
            }
            takeover {
                the_runs_of_a_crashed_worker_are_taken_over,
                an_expired_session_is_taken_over,
                a_worker_does_not_take_itself_over,
                a_living_worker_keeps_its_runs,
                what_was_committed_before_the_crash_is_kept,
                a_crash_does_not_touch_runs_that_wait,
                a_session_that_is_gone_takes_nothing_over,
                a_turn_says_how_many_crashes_count,
            }
            poison {
                a_run_of_a_higher_crash_class_is_given_only_where_there_is_room,
                a_run_with_one_crash_is_carried_like_any_other,
                a_claim_gives_one_higher_crash_class_at_a_time,
                crash_classes_have_room_for_fewer_and_fewer_runs,
                a_claim_gives_one_run_of_the_last_crash_class,
                the_first_claim_of_a_session_gives_a_run_of_the_last_class_alone,
                a_crash_counts_against_the_highest_class_aboard,
                a_run_whose_crashes_are_forgotten_is_carried_like_any_other,
                a_run_that_crashes_its_workers_becomes_stuck,
                a_run_that_crashed_its_workers_is_tried_with_care,
            }
            stuck {
                a_stuck_turn_leaves_history_and_inbox_untouched,
                a_held_run_says_why_it_was_stuck,
                the_same_build_is_not_given_a_stuck_run,
                a_stuck_run_is_ready_for_every_other_build,
                joining_writes_no_runs,
                another_build_without_the_code_is_not_given_a_stuck_run,
                a_turn_without_events_does_not_open_a_run_to_a_failed_build,
                progress_opens_a_run_to_a_failed_build,
                a_stuck_run_that_is_let_go_without_progress_is_stuck_as_before,
                a_run_that_progressed_is_not_stuck_after_a_crash,
                a_resumed_run_is_given_to_every_build,
                a_resumed_run_that_crashes_is_stuck_and_open_to_every_build,
                any_run_without_a_holder_is_resumed,
                a_message_to_a_stuck_run_is_kept_and_changes_nothing,
                a_run_stuck_again_is_kept_from_all_builds_that_failed,
                a_ninth_build_replaces_the_oldest_and_the_run_rests,
                a_resting_run_is_ended_or_resumed_at_once,
            }
            endable_without_code {
                a_fresh_run_that_is_cancelled_needs_no_code,
                a_fresh_run_that_is_cancelled_is_given_to_its_own_worker_too,
                a_fresh_run_that_was_sent_a_payload_needs_its_code,
                a_run_that_had_a_turn_needs_its_code,
                a_run_that_needs_no_code_needs_its_format,
                a_cancel_that_came_while_held_counts_after_a_release,
            }
            terminate {
                a_run_that_is_terminated_needs_no_code,
                a_run_that_is_terminated_is_given_once,
                a_fresh_run_that_is_terminated_needs_no_code,
                a_stuck_run_is_terminated_by_any_build,
                a_failed_build_may_terminate,
                a_cancel_frees_a_stuck_run_only_before_its_first_turn,
                a_held_run_that_is_terminated_stays_with_its_holder,
                a_terminate_that_came_while_held_counts_afterwards,
                a_terminate_that_came_before_a_run_got_stuck_counts,
                a_run_that_is_terminated_needs_its_format,
                a_terminate_that_was_consumed_counts_no_more,
                a_wake_needs_the_code,
            }
            deadlines {
                a_deadline_is_on_the_run_and_in_its_claim,
                a_turn_from_a_start_keeps_its_deadline,
                a_turn_clears_the_deadline,
                a_turn_from_a_start_clears_the_deadline,
                a_stuck_turn_keeps_the_deadline,
                the_end_clears_the_deadline,
                a_deadline_before_the_begin_is_refused,
                a_deadline_makes_no_run_ready,
                a_run_is_overdue_after_the_grace,
                an_overdue_run_is_given_once,
                an_overdue_run_that_is_ready_is_given_to_its_code_as_usual,
                a_ready_run_is_overdue_to_those_without_its_code,
                an_overdue_run_that_needs_no_code_is_given_as_usual,
                an_overdue_stuck_run_is_given_to_any_build,
                a_failed_build_ends_an_overdue_run,
                a_held_run_is_not_overdue,
                a_run_that_was_taken_over_is_overdue,
                a_claim_returns_when_the_next_run_is_overdue,
                overdue_runs_are_given_from_the_moment_that_a_worker_says,
                the_longest_overdue_comes_first,
                an_overdue_run_is_given_to_those_who_can_read_it,
                ready_runs_come_before_overdue_ones,
                an_overdue_run_is_given_by_its_crash_class,
            }
            lists {
                a_list_is_sorted_both_ways,
                a_listed_run_is_the_whole_view,
                a_list_is_filtered_by_status,
                a_list_is_filtered_by_workflow,
                a_run_is_found_by_its_key,
                pages_bring_every_run_once,
                pages_are_stable_while_runs_are_added,
                a_filtered_list_is_paged,
                a_page_has_a_limit,
                a_list_is_filtered_by_parent,
                a_list_is_filtered_by_root,
                a_list_is_filtered_by_time,
                a_list_is_filtered_by_text,
                a_text_is_found_in_every_alphabet,
                filters_hold_together,
                pages_are_walked_both_ways,
                a_page_in_front_holds_the_last_of_those_in_front,
                two_cursors_bound_a_list,
                a_list_by_key_keeps_to_its_cursors,
            }
            counts {
                counts_follow_every_change,
                counts_list_every_status,
                each_final_status_is_counted_separately,
                counts_are_true_after_sessions_end,
                repeats_and_refusals_are_not_counted,
            }
            ended {
                an_ended_run_answers_at_once,
                a_waiter_receives_every_final_status,
                every_waiter_receives_the_end,
                a_wait_ends_at_its_limit,
                who_stops_waiting_leaves_nothing_behind,
                the_end_of_an_unknown_run_is_not_found,
            }
            changed {
                a_start_is_a_change,
                a_message_is_a_change,
                a_run_that_is_let_go_is_a_change,
                a_wait_that_ends_at_once_is_a_change,
                a_change_between_claim_and_waiting_is_not_missed,
                without_a_change_it_completes_at_its_moment,
                the_work_that_follows_a_change_is_under_way_without_a_gap,
                what_a_turn_does_beyond_its_run_is_a_change,
                a_terminate_is_a_change,
                an_earlier_deadline_is_a_change,
            }
            queues {
                a_run_is_given_to_those_who_serve_its_queue,
                the_default_queue_is_a_queue_as_others,
                a_worker_of_the_queue_needs_the_code,
                queue_and_priority_are_on_the_run,
                a_claim_brings_runs_of_all_the_workers_queues,
                a_worker_without_queues_gets_what_needs_no_code,
                a_run_that_needs_no_code_has_no_queue,
                an_overdue_run_has_no_queue,
                a_woken_run_stands_in_its_queue,
                a_run_that_was_let_go_stands_in_its_queue,
                a_stuck_run_is_tried_by_those_who_serve_its_queue,
                a_stuck_run_is_given_to_other_builds_that_serve_its_queue,
                a_child_stands_in_the_queue_of_its_start,
                a_child_in_a_bad_queue_is_refused,
                a_turn_from_a_start_keeps_the_queue,
                a_key_returns_its_run_from_another_queue,
                queues_are_compared_exactly,
                a_start_in_a_bad_queue_is_refused,
                a_queued_step_may_have_the_longest_name,
                a_worker_of_bad_queues_does_not_join,
                workers_show_their_queues,
                a_claim_returns_when_its_queues_are_due,
                runs_are_listed_by_queue,
                lists_leave_queued_steps_out,
                lists_leave_built_in_runs_out,
                runs_of_other_queues_are_not_in_the_way,
            }
            priorities {
                the_more_urgent_comes_first,
                a_level_is_worth_a_time_of_waiting,
                nothing_waits_for_ever,
                an_urgent_run_is_not_given_before_it_is_due,
                urgent_runs_that_are_due_soon_hide_nothing,
                a_claim_returns_the_first_due_time_of_all_priorities,
                a_full_claim_returns_the_next_due_time,
                priorities_count_across_workflows_and_queues,
                a_short_claim_brings_the_most_urgent,
                a_run_keeps_its_priority,
                an_urgent_run_is_preferred_by_its_last_holder,
                a_run_that_needs_no_code_has_no_priority,
                the_most_urgent_of_a_crash_class_is_given,
                a_priority_past_the_highest_is_refused,
            }
            cancels {
                a_second_cancel_is_told_of_the_first,
                a_message_repeated_after_a_cancel_is_answered_as_before,
                of_two_cancels_in_one_call_the_second_is_told,
                a_turn_that_was_asked_to_stop_sets_the_mark,
                a_cancel_repeated_after_the_end_is_answered_as_before,
                a_cancel_of_a_turn_sets_the_mark,
            }
            kept_payloads {
                a_turn_says_how_many_payloads_are_kept,
                a_payload_past_the_limit_of_kept_ones_is_refused,
                a_payload_that_the_run_waits_for_is_taken_past_the_limit_of_kept_ones,
            }
            mixed_rules {
                new_runs_get_the_lowest_rules_that_every_session_knows,
                a_start_may_ask_for_lower_rules,
                a_child_gets_the_lowest_rules,
                a_turn_from_a_start_keeps_its_rules,
                a_beat_tells_the_rules_of_new_runs,
                a_run_is_given_only_to_those_who_can_read_its_format,
            }
            formats {
                a_commit_raises_the_format,
                a_commit_that_needs_no_more_leaves_the_format,
                every_kind_of_turn_raises_the_format,
                a_turn_from_a_start_raises_the_format,
                a_message_raises_the_format,
                a_message_that_the_holder_cannot_read_is_refused,
                a_message_that_cannot_be_read_leaves_its_neighbours_alone,
                a_turn_tells_a_run_whose_holder_cannot_read_it,
                new_runs_get_a_format_that_every_session_can_read,
            }
            heartbeats {
                details_are_brought_by_the_claim_after_a_crash,
                details_of_runs_that_others_hold_are_ignored,
                an_attempt_that_has_ended_is_forgotten,
                details_leave_the_run_as_it_is,
            }
            streams {
                chunks_are_read_as_they_were_written,
                a_repeated_write_changes_nothing,
                only_the_holder_writes,
                each_write_of_a_call_has_its_own_answer,
                a_newer_attempt_supersedes_older_ones,
                an_attempt_of_the_next_holder_is_newer,
                a_closed_stream_counts_later_writes,
                the_end_of_a_run_closes_its_streams,
                pages_are_read_by_index,
                a_stream_keeps_its_last_entries,
                the_number_of_streams_is_limited,
                streams_are_listed_by_name,
                chunks_of_a_workflow_are_part_of_its_turn,
                a_workflow_closes_and_limits_streams,
                the_last_published_state_is_kept,
                a_watch_reports_every_change_of_its_run,
                pruning_deletes_streams_and_states,
            }
            rows {
                every_turn_is_stored_as_core_computes,
                every_end_of_a_session_is_stored_as_core_computes,
                every_message_and_resume_wakes_as_core_computes,
            }
            reports {
                a_worker_that_has_not_beaten_reports_nothing,
                a_beat_keeps_the_report,
                the_last_report_counts,
                the_report_of_a_lost_session_is_not_kept,
                a_worker_is_shown_with_the_version_of_its_library,
                a_worker_is_shown_with_the_format_that_it_can_read,
            }
            prune {
                a_pruned_run_is_forgotten,
                a_run_that_ended_later_is_kept,
                a_run_that_has_not_ended_is_kept,
                every_ended_run_is_pruned,
                pruning_continues_where_it_stopped,
                a_full_call_is_not_the_last,
                one_call_prunes_no_more_than_its_limit,
                a_repeated_call_forgets_nothing_more,
                the_key_of_a_pruned_run_is_free,
                pruning_leaves_a_key_to_the_run_that_has_it,
                the_children_of_a_pruned_run_are_kept,
                pages_continue_after_a_pruned_run,
            }
        }
    };
    (@cases $open:ident $($module:ident { $($case:ident,)* })*) => {$(
        mod $module {
            $(
                #[test]
                fn $case() {
                    $crate::suite::check(super::$open, $crate::suite::$module::$case);
                }
            )*
        }
    )*};
}
