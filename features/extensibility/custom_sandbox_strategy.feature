Feature: Custom strategies
  How something is isolated is a matter of nine methods. Whoever has them is a strategy: a class in a Python module, a
  program, or one of ours under another name. The configuration names it; it is looked at before it is trusted, and only
  when somebody uses it.

  Background:
    Given a directory with these files
      | path      | content |
      | readme.md | first   |
      | notes.txt | second  |
    And a Python module "company" with a class "Copies" that has all nine methods

  Rule: The configuration names a strategy

    Scenario Outline: A class is named by its module in either way
      Given the configuration says of "mine"
        """
        <entry>
        """
      When a sandbox is asked for with the strategy "mine"
      Then it is made by "mine" because of "--strategy"

      Examples:
        | entry                              |
        | {module: company, class: Copies}   |
        | {module: "company:Copies"}         |

    Scenario: A program
      Given the configuration says of "mine"
        """
        {module: "exec:{plugins}/evil.py"}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it is made by "mine" because of "--strategy"
      When "readme.md" in it is written to be "changed"
      Then it differs in "readme.md"

    Scenario: One of ours under another name
      Given the configuration says of "mine"
        """
        {module: "builtin:filesystem_copy", options: {exclude: ["*.txt"]}}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it is made by "mine" because of "--strategy"
      And there is no "notes.txt" in it

    Scenario: Options reach the class
      Given the class "Copies" notes the option "bucket"
      And the configuration says of "mine"
        """
        {module: "company:Copies", options: {bucket: b-17}}
        """
      When a sandbox is asked for with the strategy "mine"
      Then the plugin "mine" has noted "bucket is b-17"

    Scenario: Options that the class does not take
      Given the configuration says of "mine"
        """
        {module: "company:Copies", options: {bucket: b-17}}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it fails with "bucket"
      And nothing was made

    Scenario Outline: What is not there is named
      Given the configuration says of "mine"
        """
        <entry>
        """
      When a sandbox is asked for with the strategy "mine"
      Then it fails with "mine" and "<words>"
      And nothing was made

      Examples:
        | entry                          | words          |
        | {module: "company:Coppies"}    | Coppies        |
        | {module: "compani:Copies"}     | compani        |
        | {module: "exec:/nowhere/prog"} | /nowhere/prog  |

    Scenario: A strategy that nobody uses is never started
      Given importing the module "company" leaves a trace
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      When a sandbox is asked for with the strategy "filesystem_copy"
      Then it is made by "filesystem_copy" because of "--strategy"
      And there is no trace
      When a sandbox is asked for with the strategy "mine"
      Then there is a trace

  Rule: What lacks a method is no strategy

    Scenario Outline: One method is missing
      Given the class "Copies" has no "<method>"
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it fails with "mine" and "`<method>` is missing"
      And nothing was made
      And the strategy "filesystem_copy" works as ever

      Examples:
        | method             |
        | create             |
        | read               |
        | write              |
        | diff               |
        | commit             |
        | rollback           |
        | checkpoint         |
        | restore_checkpoint |
        | cleanup            |

    Scenario Outline: A method of the wrong shape
      Given "<method>" of the class "Copies" is defined as "<definition>"
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it fails with "mine" and "<words>"
      And nothing was made

      Examples:
        | method   | definition                              | words                                              |
        | diff     | def diff(self): pass                    | `diff` takes nothing where it is called with (ref) |
        | write    | def write(self, ref, path): pass        | `write` takes (ref, path)                          |
        | read     | def read(self, ref, path, how): pass    | `read` takes (ref, path, how)                      |
        | commit   | async def commit(self, ref): pass       | `commit` is a coroutine                            |
        | rollback | rollback = 7                            | `rollback` is not a method                         |
        | cleanup  | cleanup = property(lambda self: None)   | `cleanup` is a property                            |
        | create   | def create(self, p, r, *, zone): pass   | `create` needs the keyword argument                |

    Scenario: Everything that is wrong is said at once
      Given the class "Copies" has no "read"
      And the class "Copies" has no "cleanup"
      And "diff" of the class "Copies" is defined as "def diff(self): pass"
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it fails with "`read` is missing" and "`cleanup` is missing"
      And it fails with "mine" and "`diff` takes nothing"

    Scenario: What was mended is taken, without a new start
      Given the class "Copies" has no "read"
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it fails with "mine" and "`read` is missing"
      Given the class "Copies" is whole again
      When a sandbox is asked for with the strategy "mine"
      Then it is made by "mine" because of "--strategy"

    Scenario: A capability that nobody knows
      Given the class "Copies" declares "{'teleports': True}"
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      When a sandbox is asked for with the strategy "mine"
      Then it fails with "mine" and "teleports"

  Rule: Registration verifies

    Background:
      Given the configuration says of "mine"
        """
        {module: "company:Copies"}
        """

    Scenario Outline: Each command that verifies a strategy names every problem, and the listing shows them
      Given the class "Copies" has no "read"
      And "diff" of the class "Copies" is defined as "def diff(self): pass"
      And "cleanup" of the class "Copies" is defined as "cleanup = 7"
      Then the last check of "mine" is "not_checked"
      When "<command>" is run
      Then it prints "`read` is missing"
      And it prints "`diff` takes nothing where it is called with (ref)"
      And it prints "`cleanup` is not a method"
      And the last check of "mine" is "broken"
      And the last check of "mine" names the methods "read, diff, cleanup"

      Examples:
        | command                        |
        | sandbox strategies check mine  |
        | sandbox doctor                 |
        | sandbox create --strategy mine |

    Scenario: The library refuses a broken strategy and names every problem
      Given the class "Copies" has no "read"
      And "diff" of the class "Copies" is defined as "def diff(self): pass"
      When "mine" is registered through the library
      Then it fails with "`read` is missing" and "`diff` takes nothing where it is called with (ref)"
      And the last check of "mine" is "broken"

    Scenario Outline: A strategy that has every method
      When "<command>" is run
      Then the last check of "mine" is "ok"

      Examples:
        | command                                    |
        | sandbox strategies check mine              |
        | sandbox doctor                             |
        | sandbox create --strategy mine             |

    Scenario: The library registers a strategy that has every method
      When "mine" is registered through the library
      Then the last check of "mine" is "ok"

    Scenario: A result counts until the plugin's file is edited
      When "sandbox doctor" is run
      Then the last check of "mine" is "ok"
      Given the class "Copies" was edited
      Then the last check of "mine" is "not_checked"

    Scenario: A result counts until the declaration is changed
      When "sandbox doctor" is run
      Then the last check of "mine" is "ok"
      Given the configuration says of "mine"
        """
        {module: "company:Copies", timeout: 90s}
        """
      Then the last check of "mine" is "not_checked"

    Scenario: A listing starts nothing
      Given importing the module "company" leaves a trace
      When "sandbox strategies list" is run
      Then it prints "not checked"
      And there is no trace

    Scenario Outline: A broken declaration does not stop a command that does not use it
      Given importing the module "company" leaves a trace
      And the configuration says of "other"
        """
        <entry>
        """
      When "sandbox create --strategy filesystem_copy" is run
      Then it prints "ready, made just now"
      And there is no trace
      When "sandbox create --strategy other" is run
      Then it prints "other"
      And it prints "<reason>"

      Examples:
        | entry                          | reason                    |
        | {module: "exec:/nowhere/prog"} | /nowhere/prog             |
        | {module: "compani:Copies"}     | compani                   |
        | {module: company}              | needs the class           |
        | {module: "exec:prog"}          | is not an absolute path   |

    Scenario Outline: Nothing of an untrusted project is imported for a check
      Given importing the module "company" leaves a trace
      And the configuration says of "mine"
        """
        {module: "builtin:filesystem_copy"}
        """
      And the untrusted project says of "theirs"
        """
        {module: "company:Copies"}
        """
      When "<command>" is run
      Then it prints "sandbox.custom_strategies is not for an untrusted project to set"
      And there is no trace

      Examples:
        | command                          |
        | sandbox strategies check theirs  |
        | sandbox strategies list          |
        | sandbox doctor                   |
        | sandbox create --strategy theirs |

  Rule: Custom names take part in the choice of a strategy like any other

    Background:
      Given the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      And the configuration says of "other"
        """
        {module: "company:Copies"}
        """

    Scenario: The global key
      Given the configuration chooses "mine"
      When a sandbox is asked for
      Then it is made by "mine" because of "sandbox.strategy"

    Scenario: The resource type is stronger than the global key
      Given the configuration chooses "other"
      And the resource type "fs-directory" chooses "mine"
      When a sandbox is asked for
      Then it is made by "mine" because of "sandbox_strategy of resource type fs-directory"

    Scenario: The resource itself is stronger than its type
      Given the configuration chooses "other"
      And the resource type "fs-directory" chooses "other"
      When a sandbox is asked for of a resource that chooses "mine"
      Then it is made by "mine" because of "strategy of the resource itself"

    Scenario: The caller is stronger than all
      Given the configuration chooses "other"
      And the resource type "fs-directory" chooses "other"
      When a sandbox is asked for with the strategy "mine" of a resource that chooses "other"
      Then it is made by "mine" because of "--strategy"

    Scenario: A name that nobody has
      When a sandbox is asked for with the strategy "mein"
      Then it fails with "mein"

    Scenario: A strategy that is for other types
      Given the configuration says of "buckets"
        """
        {module: "company:Copies", resource_types: [s3-bucket]}
        """
      When a sandbox is asked for with the strategy "buckets"
      Then it fails with "buckets" and "fs-directory"
      And it fails with "compatible" and "mine"
      And nothing was made

    Scenario: A resource type of the user's own, with a strategy of the user's own
      Given a resource type "notebook" for URLs of "notes" with the strategy "pages"
      And a Python module "pages" with a class "Pages" that keeps text in its state directory
      And the configuration says of "pages"
        """
        {module: "pages:Pages"}
        """
      When a sandbox of "notes://shelf/one" is asked for
      Then it is made by "pages" because of "default_strategy of resource type notebook"
      When "intro" in it is written to be "once upon a time"
      Then "intro" in it reads "once upon a time"
      And it differs in "intro"
      When it is committed
      Then the plugin "pages" has noted "intro is once upon a time"
      And nothing differs

  Rule: A custom strategy is worked with like any other

    Background:
      Given the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      And a sandbox was asked for with the strategy "mine"

    Scenario: From its making to its end
      When "readme.md" in it is written to be "changed"
      And "new/file.txt" in it is written to be "new"
      Then "readme.md" in it reads "changed"
      And the original is as it was
      And it differs in "new/file.txt" and "readme.md"
      When a checkpoint "before" is taken
      And "readme.md" in it is written to be "worse"
      And the checkpoint "before" is restored
      Then "readme.md" in it reads "changed"
      When it is committed
      Then the original has "changed" in "readme.md"
      And the original has "new" in "new/file.txt"
      And nothing differs
      When "readme.md" in it is written to be "never mind"
      And it is rolled back
      Then "readme.md" in it reads "changed"
      And nothing differs
      When it is destroyed
      Then nothing is left of it

    Scenario: A file that is not there
      When "missing.txt" in it is read
      Then it fails with "missing.txt"

    Scenario: What was edited in the original meanwhile is a conflict
      Given "readme.md" in the original is "edited by hand"
      When "readme.md" in it is written to be "changed"
      And it is committed
      Then it is a conflict on "readme.md"
      And the original has "edited by hand" in "readme.md"
      And it differs in "readme.md"

    Scenario: A commit of chosen paths, where the strategy has not declared that it can
      When "readme.md" in it is written to be "changed"
      And "readme.md" alone is committed
      Then it fails with "mine" and "commit chosen paths"
      And the original is as it was

    Scenario: The sandbox is there for another process
      When "readme.md" in it is written to be "changed"
      And the program is started again
      Then "readme.md" in it reads "changed"
      And it differs in "readme.md"

    Scenario: The configuration forgot it
      When "readme.md" in it is written to be "changed"
      And the program is started again without "mine"
      And it is committed
      Then it fails with "mine"
      And the original is as it was

  Rule: Classes may be as small as they like

    Scenario: A commit that takes no request, and dicts as results
      Given a Python module "plain" with a class "Plain" that returns dicts and takes no request
      And the configuration says of "plain"
        """
        {module: "plain:Plain"}
        """
      And a sandbox was asked for with the strategy "plain"
      When "a" in it is written to be "text"
      Then "a" in it reads "text"
      And it differs in "a"
      When it is committed
      Then nothing differs
      And the plugin "plain" has noted "committed"
      When it is destroyed
      Then nothing is left of it

  Rule: What a plugin does wrong concerns its sandbox alone

    Scenario: It dies in a commit, and is started again
      Given "commit" of the class "Copies" kills its process once
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      And a sandbox was asked for with the strategy "mine"
      When "readme.md" in it is written to be "changed"
      And it is committed
      Then it fails with "mine" and "exited with status 3"
      And the log has a "failed" "commit"
      And it differs in "readme.md"
      And the original is as it was
      When it is committed
      Then the log has a "done" "commit"
      And the original has "changed" in "readme.md"

    Scenario: It raises
      Given "diff" of the class "Copies" is defined as "def diff(self, ref): raise ValueError('no luck')"
      And the configuration says of "mine"
        """
        {module: "company:Copies"}
        """
      And a sandbox was asked for with the strategy "mine"
      When its differences are asked for
      Then it fails with "`diff` failed" and "no luck"
      And "readme.md" in it reads "first"
      And the strategy "filesystem_copy" works as ever
