Feature: Overlays of directories
  The kernel shows the original with the sandbox's changes over it. Nothing is copied when a sandbox is made, and where
  overlays do not work another strategy takes over and says why.

  Background:
    Given a directory with these files
      | path         | content         |
      | readme.md    | first version   |
      | src/main.rs  | fn main() {}    |
      | src/lib.rs   | pub mod parser; |

  @overlay
  Scenario: Create
    When a sandbox is asked for by the strategy "overlay"
    Then the strategy "overlay" is used, as it was asked for
    And it is a copy of the directory
    And no change is kept for it yet
    Given "src/main.rs" in the sandbox is "fn main() { parse() }"
    Then "src/main.rs" in the sandbox reads "fn main() { parse() }"
    And the original is as it was

  @overlay
  Scenario: Commit
    Given a sandbox was asked for by the strategy "overlay"
    And "src/main.rs" in the sandbox is "fn main() { parse() }"
    And "src/lib.rs" in the sandbox is removed
    And "notes.txt" in the sandbox is "new"
    Then the sandbox differs in
      | path        | kind     |
      | notes.txt   | created  |
      | src/lib.rs  | deleted  |
      | src/main.rs | modified |
    When the sandbox is committed
    Then the original has exactly these files
      | path        | content               |
      | notes.txt   | new                   |
      | readme.md   | first version         |
      | src/main.rs | fn main() { parse() } |
    And nothing differs

  @overlay
  Scenario: A commit over an edit by hand
    Given a sandbox was asked for by the strategy "overlay"
    And "readme.md" in the sandbox is "from the sandbox"
    And "notes.txt" in the sandbox is "new"
    And "readme.md" in the original is "by hand"
    When the sandbox is committed
    Then it is a conflict on "readme.md"
    And the original has exactly these files
      | path        | content         |
      | readme.md   | by hand         |
      | src/lib.rs  | pub mod parser; |
      | src/main.rs | fn main() {}    |

  @overlay
  Scenario: Rollback
    Given a sandbox was asked for by the strategy "overlay"
    And "src/main.rs" in the sandbox is "broken"
    And "src/lib.rs" in the sandbox is removed
    And "notes.txt" in the sandbox is "scratch"
    When the sandbox is rolled back
    Then nothing differs
    And it is a copy of the directory
    And there is no "notes.txt" in the sandbox
    And the original is as it was

  @overlay
  Scenario: Fallback
    Given the directory and the state are on an overlay themselves
    When a sandbox is asked for by the strategy "overlay"
    Then the strategy "overlay" was asked for, and a copy is used because "its upper is on an overlay itself"
    And it is a copy of the directory
    And nothing is mounted for it

  @overlay
  Scenario: No fallback is wanted
    Given the directory and the state are on an overlay themselves
    When a sandbox is asked for by the strategy "overlay" and no other
    Then "overlay" is unavailable because "its upper is on an overlay itself"
    And nothing is mounted for it
    And the original is as it was
