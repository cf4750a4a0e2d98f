Feature: Branches of git checkouts
  A sandbox of a checkout has everything that is in it and a repository of its own. Nothing that is done there reaches the
  user's repository, until a commit makes one commit on the user's branch.

  Background:
    Given a directory with these files
      | path         | content         |
      | readme.md    | first version   |
      | src/main.rs  | fn main() {}    |
      | src/lib.rs   | pub mod parser; |
    And the directory is a git checkout with these files committed
    And "draft.txt" in the original is "not committed"

  Scenario: Create
    When a sandbox is asked for by the strategy "git_worktree"
    Then the strategy "git_worktree" is used, as it was asked for
    And "draft.txt" in the sandbox reads "not committed"
    And git in the sandbox says "?? draft.txt" to "status --porcelain"
    And nothing differs

  Scenario: Checkpoint, modify, roll back to the checkpoint
    Given the repository is looked at
    And the handler made a sandbox for plan "fix-1"
    And "src/main.rs" in the sandbox is "fn main() { parse() }"
    And in the sandbox git does "commit -q -m parse src/main.rs"
    And "readme.md" in the sandbox is "second version"
    And in the sandbox git does "add readme.md"
    When the handler takes a checkpoint
    Given "src/main.rs" in the sandbox is "broken"
    And "src/lib.rs" in the sandbox is removed
    And "notes.txt" in the sandbox is "scratch"
    And in the sandbox git does "add --all"
    And in the sandbox git does "commit -q -m worse"
    And in the sandbox git does "switch -q -c elsewhere"
    When the handler rolls back to the checkpoint
    Then the rollback succeeded and restored 3 files
    And "src/main.rs" in the sandbox reads "fn main() { parse() }"
    And "src/lib.rs" in the sandbox reads "pub mod parser;"
    And there is no "notes.txt" in the sandbox
    And git in the sandbox says "parse" to "log -1 --format=%s"
    And git in the sandbox says "readme.md" to "diff --cached --name-only"
    And the repository and its files are as they were

  Scenario: Commit
    Given a sandbox was asked for by the strategy "git_worktree"
    And "src/main.rs" in the sandbox is "fn main() { parse() }"
    And in the sandbox git does "commit -q -m inside src/main.rs"
    And "src/lib.rs" in the sandbox is removed
    And "notes.txt" in the sandbox is "new"
    Then the sandbox differs in
      | path        | kind     |
      | notes.txt   | created  |
      | src/lib.rs  | deleted  |
      | src/main.rs | modified |
    When the sandbox is committed with the message "parse"
    Then nothing differs
    And git in the original says "parse" to "log -1 --format=%s"
    And git in the original says "?? draft.txt" to "status --porcelain"
    And git in the original says "first" to "log -1 --format=%s HEAD^"

  Scenario: Leave a branch for review
    Given a sandbox was asked for by the strategy "git_worktree"
    And "readme.md" in the sandbox is "second version"
    When the sandbox is committed to the branch "review"
    Then git in the original says "readme.md" to "diff --name-only main...review"
    And git in the original says "?? draft.txt" to "status --porcelain"
    And git in the original says "first" to "log -1 --format=%s"
    And the sandbox differs in
      | path      | kind     |
      | readme.md | modified |

  Scenario: A commit over uncommitted work
    Given a sandbox was asked for by the strategy "git_worktree"
    And "readme.md" in the sandbox is "from the sandbox"
    And "notes.txt" in the sandbox is "new"
    And "readme.md" in the original is "by hand"
    And the repository is looked at
    When the sandbox is committed
    Then it is a conflict on "readme.md"
    And the repository and its files are as they were
