//! One suite for every strategy of databases.
//!
//! A case is a function of a [`Fixture`]; each runs on every kind of database, with a database of its own. A test is the cases of one
//! module on one kind: they share a server, which takes longer to start than most of them to run.

mod checkpoints;
mod commits;
mod conflicts;
mod diffs;
mod fixture;
mod lifecycle;
mod losses;
mod odd_values;
mod paths;
mod phases;
mod production;

pub use fixture::{Fixture, Sandbox, in_words, is_gone, until};
pub use production::{Open, Production};

/// What is tried of every database.
pub struct Case {
    /// `module::function`.
    pub name: &'static str,
    /// What it needs.
    pub needs: Need,
    /// Does it.
    pub run: fn(&mut Fixture),
}

/// What a case needs of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, missing_docs, reason = "written as words in the list of cases")]
pub enum Need {
    nothing,
    /// A process holds a transaction.
    keepers,
    /// A clone.
    clones,
    /// A server, which has locks for single rows.
    a_server,
}

impl Need {
    /// Whether a fixture has it.
    pub fn is_met(self, fixture: &Fixture) -> bool {
        match self {
            Self::nothing => true,
            Self::keepers => fixture.has_keepers(),
            Self::clones => !fixture.has_keepers(),
            Self::a_server => !matches!(fixture.production, Production::Sqlite(_)),
        }
    }
}

macro_rules! cases {
    ($($module:ident { $($case:ident [$need:ident];)* })*) => {
        /// The modules that the cases are in.
        pub const MODULES: &[&str] = &[$(stringify!($module)),*];

        /// All cases.
        pub const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            needs: Need::$need,
            run: $module::$case,
        }),*),*];
    };
}

cases! {
    paths {
        the_schema_is_sql [nothing];
        the_tables [nothing];
        rows_in_the_order_of_their_keys [nothing];
        a_page_of_rows [nothing];
        a_row_is_inserted_replaced_and_deleted [nothing];
        a_row_that_is_none [nothing];
        a_query_changes_nothing [nothing];
        a_query_that_is_wrong [nothing];
        a_script_is_one_unit [nothing];
        a_script_cannot_end_it [nothing];
        how_programs_connect [nothing];
        the_changes_as_lines [nothing];
        the_status [keepers];
        nothing_else [nothing];
    }
    diffs {
        nothing_differs_at_first [nothing];
        insert_update_delete [nothing];
        what_was_done_and_undone_is_nothing [nothing];
        an_update_to_the_same_is_nothing [nothing];
        another_key_is_another_row [nothing];
        keys_that_change_places [nothing];
        the_same_key_again [nothing];
        a_table_without_a_key_is_told [nothing];
        a_composite_key_is_one_name [nothing];
        the_digest_follows_the_content [nothing];
        many_rows [nothing];
        a_new_table [nothing];
        looking_changes_nothing [nothing];
    }
    odd_values {
        null_is_not_empty [nothing];
        unicode [nothing];
        quotes_in_names [nothing];
        large_text [nothing];
        bytes [nothing];
        a_wide_table [nothing];
        big_numbers [nothing];
        keys_of_text [nothing];
    }
    commits {
        everything_and_all_at_once [nothing];
        nobody_sees_it_before [nothing];
        the_committed_state_is_the_base [nothing];
        nothing_to_commit [nothing];
        the_right_digest [nothing];
        the_wrong_digest_commits_nothing [nothing];
        a_part_is_refused [nothing];
        odd_rows_arrive_as_they_are [nothing];
        rolled_back_is_as_at_first [nothing];
        rolled_back_after_a_commit [nothing];
        what_production_did_meanwhile_stays [nothing];
    }
    phases {
        prepared_is_not_seen [nothing];
        finished_equals_whole [nothing];
        finish_twice [nothing];
        finish_of_nothing [nothing];
        abort_leaves_production_alone [nothing];
        abort_of_nothing_leaves_the_work [nothing];
        abort_of_what_is_decided_is_refused [nothing];
        prepared_here_finished_there [nothing];
        prepared_here_aborted_there [nothing];
        prepare_is_held_to_the_digest [nothing];
        work_goes_on_after_an_abort [nothing];
        one_operation_after_the_other [nothing];
    }
    checkpoints {
        restored [nothing];
        an_earlier_one [nothing];
        twice [nothing];
        a_name_is_replaced [nothing];
        an_unknown_one [nothing];
        the_base_stays [nothing];
        from_another_process [nothing];
        one_before_a_commit [nothing];
    }
    lifecycle {
        a_ref_is_valid_in_another_process [nothing];
        cleanup_leaves_nothing [nothing];
        cleanup_twice [nothing];
        cleanup_of_work_lets_production_go_on [nothing];
        cleanup_of_what_is_prepared [nothing];
        two_sandboxes [nothing];
        a_database_that_is_not_there [nothing];
        a_failed_create_leaves_nothing [nothing];
    }
    losses {
        a_killed_keeper_is_told [keepers];
        nothing_leaks [keepers];
        rollback_begins_anew [keepers];
        cleanup_after_a_loss [keepers];
        killed_after_prepare_is_finished [keepers];
        killed_after_prepare_is_aborted [keepers];
        killed_after_a_commit [keepers];
    }
    conflicts {
        production_waits_for_what_was_changed [keepers];
        the_sandbox_waits_for_production [keepers];
        other_rows_are_free [a_server];
        both_updated [clones];
        updated_here_deleted_there [clones];
        deleted_here_updated_there [clones];
        both_inserted [clones];
        both_did_the_same [clones];
        prepare_refuses_them [clones];
    }
}

/// Runs a case where the fixture has what it needs.
pub fn run(case: &Case, mut fixture: Fixture) {
    if case.needs.is_met(&fixture) {
        (case.run)(&mut fixture);
        assert_eq!(fixture.production.prepared(), "", "{} left something prepared", case.name);
    }
}
