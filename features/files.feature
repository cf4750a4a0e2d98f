Feature: The handler of files
  A resource type names a handler. The handler isolates one resource within one plan, takes checkpoints of it, brings
  them back, and says who may do what; its results are plain values.

  Background:
    Given a directory with these files
      | path         | content         |
      | readme.md    | first version   |
      | src/main.rs  | fn main() {}    |
      | src/lib.rs   | pub mod parser; |

  Scenario: A sandbox is made once for a plan
    When the handler makes a sandbox for plan "fix-1"
    Then it was created
    And it is a copy of the directory
    When the handler makes a sandbox for plan "fix-1"
    Then it was there already, under the same id
    When the handler makes a sandbox for plan "fix-2"
    Then it was created

  Scenario: A sandbox of something that is not there
    Given the directory is removed
    When the handler makes a sandbox for plan "fix-1"
    Then it fails, and the message names the directory

  Scenario: Checkpoint, modify, roll back
    Given the handler made a sandbox for plan "fix-1"
    And "src/main.rs" in the sandbox is "fn main() { parse() }"
    When the handler takes a checkpoint
    Then the checkpoint belongs to plan "fix-1" and has a time and a message
    Given "src/main.rs" in the sandbox is "broken"
    And "src/lib.rs" in the sandbox is removed
    And "notes.txt" in the sandbox is "scratch"
    When the handler rolls back to the checkpoint
    Then the rollback succeeded and restored 3 files
    And "src/main.rs" in the sandbox reads "fn main() { parse() }"
    And "src/lib.rs" in the sandbox reads "pub mod parser;"
    And there is no "notes.txt" in the sandbox
    And the original is as it was

  Scenario: Several checkpoints come back in any order
    Given the handler made a sandbox for plan "fix-1"
    And "readme.md" in the sandbox is "second version"
    And the handler took a checkpoint called "second" here
    And "readme.md" in the sandbox is "third version"
    And the handler took a checkpoint called "third" here
    When the handler rolls back to "second"
    Then "readme.md" in the sandbox reads "second version"
    When the handler rolls back to "third"
    Then "readme.md" in the sandbox reads "third version"
    When the handler rolls back to "second"
    Then "readme.md" in the sandbox reads "second version"

  Scenario: Nothing was changed since the checkpoint
    Given the handler made a sandbox for plan "fix-1"
    And the handler took a checkpoint called "here" here
    When the handler rolls back to "here"
    Then the rollback succeeded and restored 0 files

  Scenario: A checkpoint that was never taken
    Given the handler made a sandbox for plan "fix-1"
    And "readme.md" in the sandbox is "second version"
    When the handler rolls back to a checkpoint "never-taken"
    Then the rollback did not succeed, and its message names "never-taken"
    And "readme.md" in the sandbox reads "second version"

  Scenario: A checkpoint of a plan without a sandbox
    When the handler takes a checkpoint for plan "nobody"
    Then it fails, and the message names "nobody"

  Scenario: Local mode permits, and says why
    When the handler is asked whether "agent-7" may "commit"
    Then it is permitted to "agent-7" with "commit" on the directory, with a reason

  Scenario: A refusal says why
    Given a permission service that refuses "commit"
    When the handler is asked whether "agent-7" may "commit"
    Then it is refused, because "commits need a review"
    When the handler is asked whether "agent-7" may "read"
    Then it is permitted to "agent-7" with "read" on the directory, with a reason
