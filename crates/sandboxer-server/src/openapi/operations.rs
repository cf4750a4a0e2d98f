//! The operations of the HTTP API, one row each.

use serde_json::{Map, Value, json};

use crate::problem::PROBLEM_JSON;

/// One method of one path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    description: Option<&'static str>,
    parameters: &'static [Parameter],
    pub(super) body: Option<Content>,
    responses: &'static [Answer],
}

struct Parameter {
    location: &'static str,
    name: &'static str,
    schema: ParameterSchema,
    description: &'static str,
}

#[derive(Clone, Copy)]
enum ParameterSchema {
    Text,
    Key,
    Flag,
    EventNumber,
    PageLimit,
    Words(&'static [&'static str]),
    Named(&'static str),
}

/// A media type with the name of its schema; text and bytes have none.
pub(super) type Content = (&'static str, Option<&'static str>);

struct Answer {
    status: u16,
    description: &'static str,
    contents: &'static [Content],
    has_location: bool,
}

const JSON: &str = "application/json";
const BYTES: Content = ("application/octet-stream", None);

const fn operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    tag: &'static str,
) -> Operation {
    Operation {
        method,
        path,
        id,
        tag,
        summary: "",
        description: None,
        parameters: &[],
        body: None,
        responses: &[],
    }
}

impl Operation {
    const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    const fn description(mut self, description: &'static str) -> Self {
        self.description = Some(description);
        self
    }

    const fn parameters(mut self, parameters: &'static [Parameter]) -> Self {
        self.parameters = parameters;
        self
    }

    const fn json_body(self, schema: &'static str) -> Self {
        self.body((JSON, Some(schema)))
    }

    const fn body(mut self, body: Content) -> Self {
        self.body = Some(body);
        self
    }

    const fn responses(mut self, responses: &'static [Answer]) -> Self {
        self.responses = responses;
        self
    }

    /// The operation as OpenAPI describes it. `is_required` tells whether a schema has required fields.
    pub(super) fn render(&self, is_required: impl Fn(&str) -> bool) -> Value {
        let mut rendered = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "responses": self.responses.iter().map(|r| (r.status.to_string(), r.render())).collect::<Map<_, _>>(),
        });
        if let Some(description) = self.description {
            rendered["description"] = description.into();
        }
        let of_path = self.path.contains("{id}").then_some(&SANDBOX_ID);
        let parameters: Vec<_> = of_path.into_iter().chain(self.parameters).map(Parameter::render).collect();
        if !parameters.is_empty() {
            rendered["parameters"] = parameters.into();
        }
        if let Some(body) = self.body {
            rendered["requestBody"] =
                json!({"content": render_contents(&[body]), "required": body.1.is_none_or(is_required)});
        }
        rendered
    }
}

impl Parameter {
    fn render(&self) -> Value {
        let schema = match self.schema {
            ParameterSchema::Text => json!({"type": "string"}),
            ParameterSchema::Key => json!({"type": "string", "minLength": 1, "maxLength": 255}),
            ParameterSchema::Flag => json!({"type": "boolean"}),
            ParameterSchema::EventNumber => json!({"type": "integer", "format": "int64", "minimum": 0}),
            ParameterSchema::PageLimit => {
                json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 1000})
            }
            ParameterSchema::Words(words) => json!({"enum": words}),
            ParameterSchema::Named(name) => reference(name),
        };
        json!({
            "in": self.location, "name": self.name, "description": self.description,
            "required": self.location == "path", "schema": schema,
        })
    }
}

impl Answer {
    fn render(&self) -> Value {
        let mut rendered =
            json!({"description": self.description, "content": render_contents(self.contents)});
        if self.has_location {
            rendered["headers"] = json!({"Location": {"schema": {"type": "string"}}});
        }
        rendered
    }
}

fn render_contents(contents: &[Content]) -> Value {
    let schema = |name: Option<&str>| name.map_or_else(|| json!({"type": "string"}), reference);
    contents.iter().map(|(media, name)| ((*media).to_owned(), json!({"schema": schema(*name)}))).collect()
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

const fn path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { location: "path", name, schema: ParameterSchema::Text, description }
}

const fn query(name: &'static str, schema: ParameterSchema, description: &'static str) -> Parameter {
    Parameter { location: "query", name, schema, description }
}

const fn header(name: &'static str, schema: ParameterSchema, description: &'static str) -> Parameter {
    Parameter { location: "header", name, schema, description }
}

const fn answer(status: u16, description: &'static str, contents: &'static [Content]) -> Answer {
    Answer { status, description, contents, has_location: false }
}

const fn created(status: u16, description: &'static str) -> Answer {
    Answer { status, description, contents: &[(JSON, Some("SandboxStatus"))], has_location: true }
}

use ParameterSchema::{EventNumber, Flag, Key, Named, PageLimit, Text, Words};

const SANDBOX_ID: Parameter = path("id", "The sandbox: its id, a unique prefix of the id, or its name");
const EVENT_PARAMETERS: &[Parameter] = &[
    query("after", EventNumber, "Only events after this number; without it a stream starts with new events"),
    query("limit", PageLimit, "Maximum events per page; 100 by default"),
    header("Last-Event-ID", Text, "Same as `after`, sent by a client that resumes a stream"),
];
const EVENTS: &[Answer] =
    &[answer(200, "Events", &[(JSON, Some("EventsDocument")), ("text/event-stream", None)])];
const FILE_PARAMETERS: &[Parameter] = &[
    path("path", "Path inside the workspace; percent-encode bytes that are not UTF-8"),
    query("workspace", Text, "Workspace name; required if the sandbox has several"),
];
const SANDBOX: &[Answer] = &[answer(200, "The sandbox", &[(JSON, Some("SandboxStatus"))])];
const ROLLED_BACK: &[Answer] = &[answer(200, "The restored workspaces", &[(JSON, Some("RollbackDocument"))])];

/// Every operation, in the order of the router.
pub(super) const OPERATIONS: &[Operation] = &[
    operation("get", "/health", "health", "server")
        .summary("Check that the server is running; needs no token")
        .responses(&[answer(200, "The server runs and can read its state", &[(JSON, Some("Health"))])]),
    operation("get", "/metrics", "metrics", "server")
        .summary("Counters for Prometheus")
        .responses(&[answer(200, "Prometheus text format", &[("text/plain", None)])]),
    operation("get", "/openapi.json", "openapi", "server")
        .summary("This description of the API")
        .responses(&[answer(200, "An OpenAPI 3.1 document", &[(JSON, Some("OpenApi"))])]),
    operation("get", "/v1/sandboxes", "list_sandboxes", "sandboxes")
        .summary("List sandboxes, newest first")
        .parameters(&[
            query("limit", PageLimit, "Maximum sandboxes per page; 100 by default"),
            query("after", Text, "Start after this sandbox: `next` of the previous page"),
            query("all", Flag, "Include destroyed sandboxes"),
            query("state", Named("SandboxState"), "Only sandboxes in this state"),
            query("plan", Text, "Only sandboxes of this plan"),
            query("project", Text, "Only sandboxes of this project"),
        ])
        .responses(&[answer(200, "One page of sandboxes", &[(JSON, Some("SandboxesDocument"))])]),
    operation("post", "/v1/sandboxes", "create_sandbox", "sandboxes")
        .summary("Create a sandbox, or return the one that the same request created")
        .description(
            "Answers 201 with a new sandbox, 200 with an existing one (same `Idempotency-Key`, or same plan and \
             inputs), and 202 with one that is still being created, if `Prefer: respond-async` was sent or creation \
             takes long; poll `Location`.",
        )
        .parameters(&[
            header("Idempotency-Key", Key, "Requests with the same key return the same sandbox while it exists"),
            header("Prefer", Text, "`respond-async`: answer before the sandbox is ready"),
        ])
        .json_body("SandboxCreateRequest")
        .responses(&[
            created(200, "The existing sandbox"),
            created(201, "The new sandbox"),
            created(202, "The sandbox, still being created"),
        ]),
    operation("get", "/v1/sandboxes/{id}", "get_sandbox", "sandboxes")
        .summary("Show a sandbox")
        .responses(SANDBOX),
    operation("delete", "/v1/sandboxes/{id}", "destroy_sandbox", "sandboxes")
        .summary("Destroy a sandbox; uncommitted work is parked")
        .parameters(&[query("discard", Flag, "Delete uncommitted work instead of parking it")])
        .responses(&[answer(200, "The sandbox has ended, now or earlier", &[(JSON, Some("EndedDocument"))])]),
    operation("post", "/v1/sandboxes/{id}/extend", "extend_sandbox", "sandboxes")
        .summary("Change the time to live of a sandbox")
        .json_body("ExtendBody")
        .responses(SANDBOX),
    operation("post", "/v1/sandboxes/{id}/recreate", "recreate_sandbox", "sandboxes")
        .summary("Tear down and recreate the environment of a sandbox; its workspaces stay")
        .json_body("RecreateBody")
        .responses(SANDBOX),
    operation("post", "/v1/sandboxes/{id}/unpark", "unpark_sandbox", "sandboxes")
        .summary("Reopen a sandbox that was parked with uncommitted work")
        .json_body("UnparkBody")
        .responses(SANDBOX),
    operation("get", "/v1/sandboxes/{id}/diff", "diff", "changes")
        .summary("Show what differs from the original")
        .parameters(&[
            query("workspace", Text, "Only this workspace"),
            query("path", Text, "Only this path and everything below it"),
            query("format", Words(&["json", "patch"]), "`json`, or `patch` for `git apply`"),
        ])
        .responses(&[answer(200, "The difference", &[(JSON, Some("DiffDocument")), ("text/x-diff", None)])]),
    operation("post", "/v1/sandboxes/{id}/commit", "commit", "changes")
        .summary("Commit the difference to the original: everything or nothing")
        .json_body("CommitBody")
        .responses(&[
            answer(200, "The commit", &[(JSON, Some("CommitDocument"))]),
            answer(
                409,
                "The original changed and nothing was committed; or a file was edited while it was being written, \
                 and that edit was kept",
                &[(PROBLEM_JSON, Some("Problem")), (JSON, Some("CommitDocument"))],
            ),
        ]),
    operation("post", "/v1/sandboxes/{id}/undo", "undo", "changes")
        .summary("Undo the last commit of a sandbox")
        .responses(&[answer(200, "The changes are pending again", &[(JSON, Some("UndoDocument"))])]),
    operation("post", "/v1/sandboxes/{id}/rollback", "rollback", "changes")
        .summary("Discard the difference")
        .json_body("PathsBody")
        .responses(ROLLED_BACK),
    operation("get", "/v1/sandboxes/{id}/checkpoints", "list_checkpoints", "checkpoints")
        .summary("List checkpoints, oldest first")
        .responses(&[answer(200, "The checkpoints", &[(JSON, Some("CheckpointsDocument"))])]),
    operation("post", "/v1/sandboxes/{id}/checkpoints", "checkpoint", "checkpoints")
        .summary("Create a checkpoint")
        .json_body("CheckpointBody")
        .responses(&[answer(201, "The checkpoint", &[(JSON, Some("CheckpointDocument"))])]),
    operation("post", "/v1/sandboxes/{id}/checkpoints/{name}/restore", "restore_checkpoint", "checkpoints")
        .summary("Restore a checkpoint")
        .parameters(&[path("name", "Name of the checkpoint")])
        .json_body("RestoreBody")
        .responses(ROLLED_BACK),
    operation("get", "/v1/sandboxes/{id}/snapshots", "list_snapshots", "checkpoints")
        .summary("List snapshots, oldest first")
        .responses(&[answer(200, "The snapshots", &[(JSON, Some("SnapshotsDocument"))])]),
    operation("post", "/v1/sandboxes/{id}/snapshots", "snapshot", "checkpoints")
        .summary("Create a checkpoint of all workspaces")
        .responses(&[answer(201, "The snapshot", &[(JSON, Some("Snapshot"))])]),
    operation("post", "/v1/sandboxes/{id}/snapshots/{name}/restore", "restore_snapshot", "checkpoints")
        .summary("Restore a snapshot")
        .parameters(&[path("name", "Id of the snapshot")])
        .responses(ROLLED_BACK),
    operation("get", "/v1/sandboxes/{id}/files/{path}", "read_file", "files")
        .summary("Read a file")
        .parameters(FILE_PARAMETERS)
        .responses(&[answer(200, "The content of the file", &[BYTES])]),
    operation("put", "/v1/sandboxes/{id}/files/{path}", "write_file", "files")
        .summary("Write a file")
        .parameters(FILE_PARAMETERS)
        .body(BYTES)
        .responses(&[
            answer(200, "The file was overwritten", &[(JSON, Some("WrittenDocument"))]),
            answer(201, "The file was created", &[(JSON, Some("WrittenDocument"))]),
        ]),
    operation("post", "/v1/sandboxes/{id}/exec", "exec", "exec")
        .summary("Run a command and stream its output, one JSON document per line")
        .json_body("ExecBody")
        .responses(&[answer(
            200,
            "Lines, each an ExecLine; the last one has exit_code",
            &[("application/x-ndjson", None)],
        )]),
    operation("get", "/v1/sandboxes/{id}/events", "sandbox_events", "events")
        .summary("List events of one sandbox, oldest first; `Accept: text/event-stream` follows them")
        .parameters(EVENT_PARAMETERS)
        .responses(EVENTS),
    operation("get", "/v1/events", "events", "events")
        .summary("List events, oldest first; `Accept: text/event-stream` follows them")
        .parameters(EVENT_PARAMETERS)
        .responses(EVENTS),
    operation("get", "/v1/usage", "usage", "usage")
        .summary("Report usage: the caller's own, or all of it with the scope `admin`")
        .parameters(&[
            query("by", Named("UsageBy"), "Group by this; `consumer` by default"),
            query("since", Text, "From this time or date (midnight UTC) on, such as `2026-11-01`"),
            query("until", Text, "Before this time or date"),
            query("project", Text, "Only this project"),
        ])
        .responses(&[answer(200, "Rows and their sum", &[(JSON, Some("UsageReport"))])]),
    operation("get", "/v1/profiles", "profiles", "catalogue")
        .summary("List profiles")
        .responses(&[answer(200, "The profiles", &[(JSON, Some("ProfilesDocument"))])]),
    operation("get", "/v1/extensions", "extensions", "catalogue")
        .summary("List extensions")
        .responses(&[answer(200, "The extensions", &[(JSON, Some("ExtensionsDocument"))])]),
    operation("get", "/v1/hosts", "hosts", "catalogue")
        .summary("List hosts")
        .responses(&[answer(200, "The hosts", &[(JSON, Some("HostsDocument"))])]),
];
