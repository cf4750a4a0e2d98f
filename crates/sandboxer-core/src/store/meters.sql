-- What a bill is made from. Triggers keep it, so that no way of changing a sandbox's state can forget to.

-- Whose a sandbox is and what it was made as, apart from the documents in its row, so that sums over many of them read no JSON.
CREATE TABLE meters (
    sandbox_id TEXT PRIMARY KEY,
    actor_type TEXT NOT NULL,
    project TEXT NOT NULL,
    profile TEXT NOT NULL,
    extension TEXT NOT NULL,
    disk INTEGER,
    disk_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX meters_by_consumer ON meters (project, actor_type);

-- When a sandbox existed and was neither put away nor gone, and at what price. Where the price changes, another span begins.
CREATE TABLE spans (
    seq INTEGER PRIMARY KEY,
    sandbox_id TEXT NOT NULL,
    began INTEGER NOT NULL,
    ended INTEGER,
    per_hour REAL,
    currency TEXT
) STRICT;
CREATE INDEX spans_by_sandbox ON spans (sandbox_id);
CREATE UNIQUE INDEX spans_open ON spans (sandbox_id) WHERE ended IS NULL;

-- What commands reported, by the day (of UTC, counted from 1970) on which they ended.
CREATE TABLE use_by_day (
    sandbox_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    cpu INTEGER NOT NULL,
    memory_peak INTEGER NOT NULL,
    PRIMARY KEY (sandbox_id, day)
) STRICT, WITHOUT ROWID;

-- Nobody wrote down when those that are there were put away in between: each has one span, up to its last end that is known.
INSERT INTO meters (sandbox_id, actor_type, project, profile, extension, disk)
    SELECT id,
           coalesce(consumer ->> '$.actor_type', ''),
           coalesce(consumer ->> '$.project', ''),
           coalesce(environment ->> '$.route.profile_id', 'profile.local'),
           coalesce(environment ->> '$.route.extension_id', 'ext.local'),
           CASE WHEN state IN ('destroyed', 'failed') THEN 0 END
    FROM sandboxes;
INSERT INTO spans (sandbox_id, began, ended, per_hour, currency)
    SELECT s.id,
           s.created_at,
           CASE WHEN s.state IN ('parked', 'destroyed', 'failed') THEN max(s.created_at, coalesce(
               (SELECT max(e.at) FROM events e WHERE e.sandbox_id = s.id AND e.kind = s.state),
               (SELECT max(o.finished_at) FROM operations o WHERE o.sandbox_id = s.id),
               s.created_at)) END,
           s.environment ->> '$.route.cost.per_hour',
           s.environment ->> '$.route.cost.currency'
    FROM sandboxes s;

CREATE TRIGGER meter_made AFTER INSERT ON sandboxes BEGIN
    INSERT INTO meters (sandbox_id, actor_type, project, profile, extension) VALUES (
        NEW.id,
        coalesce(NEW.consumer ->> '$.actor_type', ''),
        coalesce(NEW.consumer ->> '$.project', ''),
        coalesce(NEW.environment ->> '$.route.profile_id', 'profile.local'),
        coalesce(NEW.environment ->> '$.route.extension_id', 'ext.local'));
    INSERT INTO spans (sandbox_id, began, per_hour, currency)
        SELECT NEW.id, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
               NEW.environment ->> '$.route.cost.per_hour', NEW.environment ->> '$.route.cost.currency'
        WHERE NEW.state NOT IN ('parked', 'destroyed', 'failed');
END;

-- A clock that was set back makes a span short, never negative.
CREATE TRIGGER meter_stopped AFTER UPDATE OF state ON sandboxes
    WHEN NEW.state IN ('parked', 'destroyed', 'failed') BEGIN
    UPDATE spans SET ended = max(began, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
        WHERE sandbox_id = NEW.id AND ended IS NULL;
END;

CREATE TRIGGER meter_started AFTER UPDATE OF state ON sandboxes
    WHEN NEW.state NOT IN ('parked', 'destroyed', 'failed') AND OLD.state IN ('parked', 'destroyed', 'failed') BEGIN
    INSERT INTO spans (sandbox_id, began, per_hour, currency) VALUES (
        NEW.id, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
        NEW.environment ->> '$.route.cost.per_hour', NEW.environment ->> '$.route.cost.currency');
END;

CREATE TRIGGER meter_emptied AFTER UPDATE OF state ON sandboxes WHEN NEW.state IN ('destroyed', 'failed') BEGIN
    UPDATE meters SET disk = 0, disk_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) WHERE sandbox_id = NEW.id;
END;

CREATE TRIGGER meter_rerouted AFTER UPDATE OF environment ON sandboxes
    WHEN (NEW.environment ->> '$.route.extension_id') IS NOT (OLD.environment ->> '$.route.extension_id')
      OR (NEW.environment ->> '$.route.profile_id') IS NOT (OLD.environment ->> '$.route.profile_id') BEGIN
    UPDATE meters SET profile = coalesce(NEW.environment ->> '$.route.profile_id', 'profile.local'),
                      extension = coalesce(NEW.environment ->> '$.route.extension_id', 'ext.local')
        WHERE sandbox_id = NEW.id;
END;

CREATE TRIGGER meter_repriced AFTER UPDATE OF environment ON sandboxes
    WHEN NEW.state NOT IN ('parked', 'destroyed', 'failed')
     AND ((NEW.environment ->> '$.route.cost.per_hour') IS NOT (OLD.environment ->> '$.route.cost.per_hour')
       OR (NEW.environment ->> '$.route.cost.currency') IS NOT (OLD.environment ->> '$.route.cost.currency')) BEGIN
    UPDATE spans SET ended = max(began, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
        WHERE sandbox_id = NEW.id AND ended IS NULL;
    INSERT INTO spans (sandbox_id, began, per_hour, currency) VALUES (
        NEW.id, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
        NEW.environment ->> '$.route.cost.per_hour', NEW.environment ->> '$.route.cost.currency');
END;
