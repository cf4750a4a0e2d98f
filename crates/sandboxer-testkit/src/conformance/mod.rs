//! One suite that every strategy passes, the strict fake among them.
//!
//! A case is a function over a [`Fixture`], which makes a fresh state directory, a fresh resource and the strategy. A
//! case says which capabilities it presumes; where the strategy does not declare them it is skipped, and says so.
//! [`conformance_tests!`](crate::conformance_tests) makes one `#[test]` of each case:
//!
//! ```ignore
//! conformance_tests!(my_strategy, || Fixture::new(my_strategy::entry()));
//! ```

mod checkout;
mod checkpoints;
mod cleanup;
mod commits;
mod conflicts;
mod diffs;
mod fixture;
mod gaps;
mod hunks;
mod lifecycle;
mod metadata;
mod neighbours;
mod overlays;
mod parts;
mod pass_through;
mod ranges;
mod resolutions;
mod rollbacks;
mod two_phase;
mod undos;

pub use fixture::{Fixture, Open};
use sandboxer_core::contract::Capabilities;

/// One case of the suite.
pub struct Case {
    /// `module::function`.
    pub name: &'static str,
    /// The capabilities it presumes.
    pub needs: &'static [Need],
    /// Panics where the strategy fails it.
    pub run: fn(&Fixture),
}

/// A capability that a case presumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    non_camel_case_types,
    reason = "named like the fields of `Capabilities`, as the case list writes them"
)]
pub enum Need {
    /// Changes stay away from the resource until commit.
    isolates,
    /// Changes do not: they go straight through.
    passes_through,
    /// A tree of files to work in.
    file_tree,
    /// With everything that a filesystem has.
    faithful,
    /// Prepare, finish, abort.
    two_phase,
    /// Commits of chosen paths.
    select_paths,
    /// Rollbacks of chosen paths.
    scoped_rollback,
    /// Checkpoints.
    checkpoints,
    /// Commits of chosen hunks.
    select_hunks,
    /// Every way out of a conflict.
    keeps_base,
    /// Commits can be taken back.
    undo,
    /// Parts are cleaned up by themselves, and what is parked is brought back.
    parts,
    /// Shows nothing of the original but what it was when the sandbox was made.
    own_tree,
    /// Shows the original where nothing was changed.
    looks_through,
    /// Takes a single file, or any directory of a tree, as a resource.
    any_path,
    /// Moves onto what the resource is now.
    refreshes,
    /// Commits come one on top of the other.
    branches,
    /// A commit stands by itself.
    no_branches,
    /// Reads of a part of a file.
    ranges,
    /// No commits of chosen hunks.
    no_hunks,
    /// No way out of a conflict.
    no_base,
    /// Commits cannot be taken back.
    no_undo,
    /// A clean-up is one of everything.
    no_parts,
}

impl Need {
    fn is_met(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::isolates => capabilities.isolates,
            Self::passes_through => !capabilities.isolates,
            Self::file_tree => capabilities.file_tree,
            Self::faithful => capabilities.faithful,
            Self::two_phase => capabilities.two_phase,
            Self::select_paths => capabilities.select_paths,
            Self::scoped_rollback => capabilities.scoped_rollback,
            Self::checkpoints => capabilities.checkpoints,
            Self::select_hunks => capabilities.select_hunks,
            Self::keeps_base => capabilities.keeps_base,
            Self::undo => capabilities.undo,
            Self::parts => capabilities.parts,
            Self::own_tree => !capabilities.looks_through,
            Self::looks_through => capabilities.looks_through,
            Self::any_path => {
                let types = &capabilities.resource_types;
                types.is_empty() || types.iter().any(|name| name == "fs-file")
            }
            Self::refreshes => capabilities.refreshes,
            Self::branches => capabilities.branches,
            Self::no_branches => !capabilities.branches,
            Self::ranges => capabilities.ranges,
            Self::no_hunks => !capabilities.select_hunks,
            Self::no_base => !capabilities.keeps_base,
            Self::no_undo => !capabilities.undo,
            Self::no_parts => !capabilities.parts,
        }
    }
}

/// Hands the list of all cases to another macro, so that the list exists once.
#[doc(hidden)]
#[macro_export]
macro_rules! with_conformance_cases {
    ($callback:ident $(, $argument:expr)?) => {
        $crate::$callback! { $($argument;)?
            lifecycle {
                round_trip [isolates];
                reads_what_was_written [];
                a_ref_is_valid_in_another_process [];
                write_makes_parents [];
                write_tells_what_it_did [];
                missing_is_not_found [];
                a_directory_cannot_be_read [];
                paths_cannot_leave_by_type [];
                read_follows_no_link [isolates file_tree];
                write_follows_no_link [isolates file_tree];
                patterns_choose_what_is_isolated [isolates file_tree faithful own_tree];
                a_single_file_is_a_resource [isolates file_tree any_path];
            }
            ranges {
                pieces_add_up [ranges];
                past_the_end_is_nothing [ranges];
                missing_is_not_found [ranges];
                what_was_written_last [ranges];
                no_link_is_followed [ranges isolates file_tree];
            }
            diffs {
                nothing_differs_at_first [];
                a_write_is_seen [];
                the_digest_follows_the_content [];
                created_modified_deleted [isolates file_tree faithful];
                a_renamed_file [isolates file_tree faithful];
                a_renamed_and_edited_file_loses_nothing [isolates file_tree];
                a_renamed_directory [isolates file_tree faithful];
                a_mode [isolates file_tree];
                a_link_target [isolates file_tree];
                an_extended_attribute [isolates file_tree faithful];
                a_file_became_a_directory [isolates file_tree];
                a_directory_became_a_file [isolates file_tree];
                a_file_became_a_link [isolates file_tree];
                empty_directories [isolates file_tree];
                an_edit_of_the_same_size_and_time [isolates file_tree];
                a_touch_is_no_difference [isolates file_tree];
                a_rewrite_with_the_same_content_is_no_difference [isolates file_tree];
                odd_names_survive [isolates file_tree];
                binary_content_is_told [isolates file_tree];
            }
            metadata {
                kept_on_the_way_in [isolates file_tree faithful];
                kept_on_the_way_out [isolates file_tree faithful];
                changes_of_it_are_committed [isolates file_tree faithful];
                links_stay_links [isolates file_tree faithful own_tree];
                links_survive_a_rename [isolates file_tree faithful own_tree];
                a_new_link_to_an_old_file [isolates file_tree faithful];
                nothing_else_is_touched [isolates file_tree];
            }
            commits {
                everything [isolates];
                every_kind_at_once [isolates file_tree faithful];
                chosen_paths [isolates select_paths];
                a_chosen_rename [isolates select_paths file_tree];
                nothing_to_commit [isolates];
                the_right_digest [isolates];
                the_wrong_digest_writes_nothing [isolates];
                the_digest_of_a_selection [isolates select_paths];
                the_result_is_what_diff_showed [isolates];
                the_base_moves_on [isolates];
                a_deleted_tree [isolates file_tree];
                a_held_file_cannot_change_it [isolates file_tree];
                special_files_are_refused [isolates file_tree select_paths];
            }
            conflicts {
                an_edit [isolates];
                a_deletion [isolates];
                both_created [isolates];
                a_chmod [isolates file_tree];
                replaced_with_the_same_size_and_time [isolates file_tree];
                deleted_here_edited_there [isolates file_tree];
                a_deleted_directory_gained_a_file [isolates file_tree];
                a_renamed_file_edited_there [isolates file_tree];
                a_parent_became_a_link [isolates];
                elsewhere_is_none [isolates];
                outside_the_selection_is_none [isolates select_paths];
                the_first_committer_wins [isolates];
                others_keep_what_they_read [isolates];
                diff_tells_what_moved [isolates file_tree faithful];
            }
            rollbacks {
                the_sandbox_is_as_at_first [isolates file_tree faithful];
                writes_are_gone [isolates];
                nothing_to_roll_back [];
                only_the_scope [isolates scoped_rollback];
                a_rename_goes_back_whole [isolates scoped_rollback file_tree];
                a_file_comes_back_with_its_directory [isolates scoped_rollback file_tree];
                committed_work_stays [isolates];
            }
            checkpoints {
                restore_is_exact [isolates checkpoints file_tree faithful];
                restore_brings_content_back [isolates checkpoints];
                in_any_order [isolates checkpoints];
                a_name_is_replaced [isolates checkpoints];
                an_unknown_name [checkpoints];
                taking_one_changes_nothing [isolates checkpoints];
                after_a_commit [isolates checkpoints];
                the_base_stays [isolates checkpoints];
                valid_in_another_process [isolates checkpoints];
            }
            two_phase {
                aborted_leaves_everything [isolates two_phase];
                finished_equals_whole [isolates two_phase];
                finish_twice [isolates two_phase];
                finish_in_another_process [isolates two_phase];
                abort_in_another_process [isolates two_phase];
                nothing_prepared [isolates two_phase];
                prepare_refuses_conflicts [isolates two_phase];
                finish_commits_what_was_prepared [isolates two_phase];
                finish_spares_a_later_edit [isolates two_phase];
                finish_says_again_what_it_did [isolates two_phase undo];
            }
            hunks {
                one_of_two [isolates select_hunks];
                the_rest_afterwards [isolates select_hunks];
                beside_chosen_paths [isolates select_hunks select_paths];
                the_mode_stays_pending [isolates select_hunks file_tree];
                what_does_not_apply_is_refused [isolates select_hunks];
                a_moved_original_is_a_conflict [isolates select_hunks];
            }
            resolutions {
                merge_takes_both_sides [isolates keeps_base];
                merge_refuses_the_same_line [isolates keeps_base];
                merge_knows_the_base_after_a_commit [isolates keeps_base];
                ours_leaves_it_pending [isolates keeps_base];
                theirs_goes_over_it [isolates keeps_base];
                mark_asks_a_person [isolates keeps_base];
                mark_without_need_is_a_merge [isolates keeps_base];
                none_needed [isolates keeps_base];
            }
            undos {
                the_original_is_as_before [isolates undo file_tree];
                the_changes_are_pending_again [isolates undo];
                an_undo_is_undone [isolates undo];
                in_another_process [isolates undo];
                in_any_order [isolates undo no_branches];
                from_the_end [isolates undo branches];
                only_once [isolates undo];
                an_unknown_operation [isolates undo];
                a_later_edit_is_a_conflict [isolates undo];
                of_chosen_paths [isolates undo select_paths];
                of_chosen_hunks [isolates undo select_hunks];
                of_what_theirs_went_over [isolates undo keeps_base];
                in_two_phases [isolates undo two_phase];
            }
            parts {
                undo_data [isolates parts undo];
                a_checkpoint [isolates parts checkpoints];
                parked_work_comes_back [isolates parts file_tree];
                parked_over_a_moved_original [isolates parts file_tree];
                parked_twice [isolates parts file_tree];
                checkpoints_outlive_parking [isolates parts checkpoints file_tree own_tree];
                undo_outlives_parking [isolates parts undo file_tree];
                parked_and_thrown_away [isolates parts file_tree];
                an_unknown_part_removes_nothing [isolates parts file_tree];
            }
            overlays {
                hand_edits_show_through [looks_through file_tree];
                excluded_paths_show_through [looks_through file_tree];
                unseen_edits_on_both_sides [looks_through file_tree];
                an_unseen_edit_before_the_sandboxs [looks_through file_tree];
                a_hand_deletion_of_an_edited_file [looks_through file_tree];
                created_on_both_sides [looks_through file_tree];
                a_swapped_directory [looks_through file_tree];
                copied_up_and_unchanged [looks_through file_tree];
                two_directories_that_change_places [looks_through file_tree];
                a_hand_deletion_of_a_replaced_file [looks_through file_tree];
                a_stale_layer [looks_through file_tree checkpoints];
                refreshed_and_changed [looks_through file_tree refreshes];
            }
            neighbours {
                everything_looked_up_before [looks_through file_tree];
                nothing_looked_up_before [looks_through file_tree];
                some_looked_up_before [looks_through file_tree];
                not_mounted [looks_through file_tree];
                worked_in [looks_through file_tree];
                commit_after_commit [looks_through file_tree];
                an_undo_is_not_seen [looks_through file_tree undo];
                own_changes_stay_what_they_are [looks_through file_tree];
                rolled_back_to_what_it_saw [looks_through file_tree];
                rolled_back_to_what_it_had_deleted [looks_through file_tree];
                checkpoints_show_what_they_showed [looks_through file_tree checkpoints];
                an_edit_of_it_is_a_conflict [looks_through file_tree];
                merged_with_it_three_ways [looks_through file_tree keeps_base];
                merged_with_it_only_if_asked [looks_through file_tree keeps_base no_branches];
                merged_with_it_unasked [looks_through file_tree keeps_base branches];
                below_the_committer [looks_through file_tree any_path];
                above_the_committer [looks_through file_tree any_path];
                removed_here_after_it_was_removed_there [looks_through file_tree checkpoints];
            }
            gaps {
                chosen_hunks [no_hunks];
                ways_out_of_conflicts [no_base];
                taking_back [no_undo];
                a_part_is_not_everything [no_parts];
            }
            cleanup {
                leaves_nothing [];
                twice [];
                after_half_of_it [isolates file_tree];
                the_resource_stays [isolates];
                a_failed_create_leaves_nothing [];
                with_everything_in_it [isolates file_tree checkpoints];
            }
            pass_through {
                writes_reach_the_resource [passes_through];
                diff_shows_just_what_went_through [passes_through];
                rollback_undoes_just_that [passes_through];
                rollback_spares_what_others_wrote_since [passes_through];
                commit_accepts_what_was_written [passes_through];
                created_directories_are_undone [passes_through];
                metadata_survives_a_round_trip [passes_through];
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ($($module:ident { $($case:ident [$($need:ident)*];)* })*) => {
        &[$($(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            needs: &[$(Need::$need),*],
            run: $module::$case,
        }),*),*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_functions {
    ($fixture:expr; $($module:ident { $($case:ident [$($need:ident)*];)* })*) => {
        $($crate::conformance_module! { $module, $fixture, $($case)* })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_module {
    ($module:ident, $fixture:expr, $($case:ident)*) => {
        mod $module {
            #[allow(unused_imports)]
            use super::super::*;

            $(#[test]
            fn $case() {
                $crate::conformance::run(concat!(stringify!($module), "::", stringify!($case)), $fixture);
            })*
        }
    };
}

/// One `#[test]` for each case of the suite, in a module of the given name. The fixture is a function that returns
/// `Result<Fixture, String>`: the error says why the strategy cannot be tried here.
#[macro_export]
macro_rules! conformance_tests {
    ($module:ident, $fixture:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $crate::with_conformance_cases!(conformance_functions, $fixture);
        }
    };
}

/// All cases.
pub const CASES: &[Case] = crate::with_conformance_cases!(conformance_list);

/// Runs the case of that name, or reports why it is skipped.
pub fn run(name: &str, fixture: impl FnOnce() -> Result<Fixture, String>) {
    let case = CASES.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no case {name:?}"));
    let fixture = match fixture() {
        Ok(fixture) => fixture,
        Err(reason) => return crate::skip(&reason),
    };
    match case.needs.iter().find(|need| !need.is_met(fixture.capabilities())) {
        Some(need) => {
            println!("{name} is not for {}", fixture.strategy_name());
            crate::skip::skip_as(
                "conformance",
                &format!("{} does not declare {need:?}", fixture.strategy_name()),
            );
        }
        None => {
            (case.run)(&fixture);
            fixture.assert_sound();
        }
    }
}
