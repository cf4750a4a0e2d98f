//! The queries that put definitions together from the catalogs. They run with `search_path = pg_catalog`, so every other name in
//! what they give has its schema.

/// How the objects of a kind are asked for: each row is a name, a definition, and a rank among those of its kind.
pub struct Kind {
    /// As a user calls it.
    pub name: &'static str,
    /// The expression that is the object's number, or its owner's.
    pub oid: &'static str,
    /// With `{user}` and `{oids}` in it.
    pub query: &'static str,
}

/// Catalogs that a change of a definition writes to, and the column that says whose definition.
pub const OWNERS_OF_ROWS: [(&str, &str); 22] = [
    ("pg_class", "oid"),
    ("pg_attribute", "attrelid"),
    ("pg_attrdef", "adrelid"),
    ("pg_constraint", "conrelid"),
    ("pg_constraint", "contypid"),
    ("pg_index", "indexrelid"),
    ("pg_trigger", "tgrelid"),
    ("pg_policy", "polrelid"),
    ("pg_rewrite", "ev_class"),
    ("pg_sequence", "seqrelid"),
    ("pg_inherits", "inhrelid"),
    ("pg_proc", "oid"),
    ("pg_type", "oid"),
    ("pg_enum", "enumtypid"),
    ("pg_namespace", "oid"),
    ("pg_extension", "oid"),
    ("pg_description", "objoid"),
    ("pg_operator", "oid"),
    ("pg_cast", "oid"),
    ("pg_event_trigger", "oid"),
    ("pg_publication", "oid"),
    ("pg_foreign_server", "oid"),
];

/// The kinds in the order in which their definitions can be run.
pub const KINDS: [Kind; 16] = [
    Kind { name: "schema", oid: "n.oid", query: SCHEMAS },
    Kind { name: "extension", oid: "e.oid", query: EXTENSIONS },
    Kind { name: "type", oid: "t.oid", query: TYPES },
    Kind { name: "sequence", oid: "c.oid", query: SEQUENCES },
    Kind { name: "function", oid: "p.oid", query: FUNCTIONS },
    Kind { name: "table", oid: "c.oid", query: TABLES },
    Kind { name: "index", oid: "c.oid", query: INDEXES },
    Kind { name: "constraint", oid: "c.oid", query: FOREIGN_KEYS },
    Kind { name: "view", oid: "c.oid", query: VIEWS },
    Kind { name: "trigger", oid: "c.oid", query: TRIGGERS },
    Kind { name: "rule", oid: "c.oid", query: RULES },
    Kind { name: "policy", oid: "c.oid", query: POLICIES },
    Kind { name: "privileges", oid: "c.oid", query: PRIVILEGES },
    Kind { name: "owner", oid: "c.oid", query: RELATION_OWNERS },
    Kind { name: "comment", oid: "d.objoid", query: COMMENTS },
    Kind { name: "other", oid: "o.oid", query: OTHERS },
];

const SCHEMAS: &str = "SELECT n.nspname, format('CREATE SCHEMA %I;', n.nspname), 0 FROM pg_namespace n \
    WHERE {user} AND n.nspname <> 'public' AND {oids}";

const EXTENSIONS: &str = "SELECT e.extname, \
    format('CREATE EXTENSION %I SCHEMA %I VERSION %L;', e.extname, n.nspname, e.extversion), 0 \
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname <> 'plpgsql' AND {oids}";

const TYPES: &str = "SELECT n.nspname || '.' || t.typname, CASE t.typtype \
      WHEN 'e' THEN format('CREATE TYPE %I.%I AS ENUM (%s);', n.nspname, t.typname, \
        (SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid)) \
      WHEN 'd' THEN format('CREATE DOMAIN %I.%I AS %s%s%s%s;', n.nspname, t.typname, format_type(t.typbasetype, t.typtypmod), \
        ' DEFAULT ' || t.typdefault, CASE WHEN t.typnotnull THEN ' NOT NULL' END, \
        (SELECT string_agg(format(' CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)), '' ORDER BY k.conname) \
         FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c')) \
      WHEN 'c' THEN format('CREATE TYPE %I.%I AS (%s);', n.nspname, t.typname, \
        (SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) \
         FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)) \
      WHEN 'r' THEN format('CREATE TYPE %I.%I AS RANGE (SUBTYPE = %s);', n.nspname, t.typname, \
        (SELECT format_type(r.rngsubtype, NULL) FROM pg_range r WHERE r.rngtypid = t.oid)) \
      ELSE format('-- type %I.%I', n.nspname, t.typname) END, \
    CASE t.typtype WHEN 'e' THEN 0 WHEN 'd' THEN 1 ELSE 2 END \
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid \
    WHERE {user} AND t.typtype IN ('e', 'd', 'c', 'r') AND (c.relkind IS NULL OR c.relkind = 'c') \
    AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = 'pg_type'::regclass AND x.objid = t.oid AND x.deptype = 'e') \
    AND {oids}";

const SEQUENCES: &str = "SELECT n.nspname || '.' || c.relname, \
    format('CREATE SEQUENCE %I.%I AS %s INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s%s;', n.nspname, c.relname, \
      format_type(s.seqtypid, NULL), s.seqincrement, s.seqmin, s.seqmax, s.seqstart, s.seqcache, \
      CASE WHEN s.seqcycle THEN ' CYCLE' END), 0 \
    FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE {user} AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = 'pg_class'::regclass AND x.objid = c.oid \
      AND x.deptype IN ('e', 'i')) AND {oids}";

const FUNCTIONS: &str = "SELECT format('%s.%s(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)), \
    CASE p.prokind WHEN 'a' THEN format('-- aggregate %I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) \
    ELSE rtrim(pg_get_functiondef(p.oid), E'\\n') || ';' END, 0 \
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
    WHERE {user} AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = 'pg_proc'::regclass AND x.objid = p.oid \
      AND x.deptype IN ('e', 'i')) AND {oids}";

const TABLES: &str = "SELECT n.nspname || '.' || c.relname, \
    'CREATE ' || CASE WHEN c.relpersistence = 'u' THEN 'UNLOGGED ' WHEN c.relkind = 'f' THEN 'FOREIGN ' ELSE '' END \
    || format('TABLE %I.%I', n.nspname, c.relname) \
    || CASE WHEN c.relispartition THEN (SELECT ' PARTITION OF ' || i.inhparent::regclass FROM pg_inherits i WHERE i.inhrelid = c.oid \
         LIMIT 1) ELSE '' END \
    || CASE WHEN c.relispartition AND parts.lines IS NULL THEN '' ELSE E' (\\n' || coalesce(parts.lines, '') || E'\\n)' END \
    || CASE WHEN c.relispartition THEN ' ' || pg_get_expr(c.relpartbound, c.oid) \
       ELSE coalesce((SELECT ' INHERITS (' || string_agg(i.inhparent::regclass::text, ', ' ORDER BY i.inhseqno) || ')' \
         FROM pg_inherits i WHERE i.inhrelid = c.oid), '') END \
    || coalesce(' PARTITION BY ' || pg_get_partkeydef(c.oid), '') \
    || coalesce(' WITH (' || array_to_string(c.reloptions, ', ') || ')', '') || ';' \
    || CASE WHEN c.relrowsecurity THEN format(E'\\nALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY;', n.nspname, c.relname) ELSE '' END \
    || CASE WHEN c.relforcerowsecurity THEN format(E'\\nALTER TABLE %I.%I FORCE ROW LEVEL SECURITY;', n.nspname, c.relname) ELSE '' END \
    || CASE WHEN c.relreplident IN ('f', 'n') THEN format(E'\\nALTER TABLE %I.%I REPLICA IDENTITY %s;', n.nspname, c.relname, \
         CASE c.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END) ELSE '' END, \
    (WITH RECURSIVE up(oid, depth) AS (SELECT c.oid, 0 UNION ALL SELECT i.inhparent, up.depth + 1 \
       FROM up JOIN pg_inherits i ON i.inhrelid = up.oid) SELECT max(depth) FROM up) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, LATERAL ( \
      SELECT string_agg('    ' || line, E',\\n' ORDER BY place, line) AS lines FROM ( \
        SELECT a.attnum::int AS place, format('%I %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod), \
          (SELECT format(' COLLATE %I.%I', cn.nspname, co.collname) FROM pg_collation co JOIN pg_namespace cn ON cn.oid = co.collnamespace \
           JOIN pg_type ct ON ct.oid = a.atttypid WHERE co.oid = a.attcollation AND a.attcollation <> ct.typcollation), \
          CASE WHEN a.attidentity = 'a' THEN ' GENERATED ALWAYS AS IDENTITY' \
               WHEN a.attidentity = 'd' THEN ' GENERATED BY DEFAULT AS IDENTITY' \
               WHEN a.attgenerated <> '' THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, d.adrelid)) \
               WHEN d.adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) END, \
          CASE WHEN a.attnotnull THEN ' NOT NULL' END) AS line \
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attislocal AND NOT c.relispartition \
        UNION ALL SELECT CASE k.contype WHEN 'p' THEN 10001 WHEN 'u' THEN 10002 ELSE 10003 END, \
          format('CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)) \
        FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u', 'c', 'x') AND k.conislocal) AS part) AS parts \
    WHERE {user} AND c.relkind IN ('r', 'p', 'f') AND NOT EXISTS (SELECT FROM pg_depend x \
      WHERE x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype = 'e') AND {oids}";

const INDEXES: &str = "SELECT n.nspname || '.' || c.relname, pg_get_indexdef(c.oid) || ';', (c.relkind = 'i')::int \
    FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE {user} AND NOT c.relispartition \
    AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = c.oid AND k.contype IN ('p', 'u', 'x')) \
    AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = 'pg_class'::regclass AND x.objid = i.indrelid AND x.deptype = 'e') \
    AND {oids}";

const FOREIGN_KEYS: &str = "SELECT format('%s.%s.%s', n.nspname, c.relname, k.conname), \
    format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s;', n.nspname, c.relname, k.conname, pg_get_constraintdef(k.oid)), 0 \
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE {user} AND k.contype = 'f' AND k.conparentid = 0 AND {oids}";

/// A view comes after those that it reads.
const VIEWS: &str = "SELECT n.nspname || '.' || c.relname, format('CREATE %sVIEW %I.%I AS%s', \
    CASE c.relkind WHEN 'm' THEN 'MATERIALIZED ' END, n.nspname, c.relname, E'\\n' || pg_get_viewdef(c.oid)), \
    (WITH RECURSIVE down(oid, depth) AS (SELECT c.oid, 0 UNION SELECT v.oid, down.depth + 1 FROM down \
       JOIN pg_rewrite w ON w.ev_class = down.oid \
       JOIN pg_depend x ON x.classid = 'pg_rewrite'::regclass AND x.objid = w.oid AND x.refclassid = 'pg_class'::regclass \
       JOIN pg_class v ON v.oid = x.refobjid AND v.relkind IN ('v', 'm') AND v.oid <> down.oid \
       WHERE down.depth < 100) SELECT max(depth) FROM down) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {user} AND c.relkind IN ('v', 'm') \
    AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype = 'e') \
    AND {oids}";

const TRIGGERS: &str = "SELECT format('%s.%s.%s', n.nspname, c.relname, t.tgname), pg_get_triggerdef(t.oid) || ';' \
    || CASE t.tgenabled WHEN 'D' THEN format(E'\\nALTER TABLE %I.%I DISABLE TRIGGER %I;', n.nspname, c.relname, t.tgname) \
       WHEN 'A' THEN format(E'\\nALTER TABLE %I.%I ENABLE ALWAYS TRIGGER %I;', n.nspname, c.relname, t.tgname) ELSE '' END, 0 \
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE {user} AND NOT t.tgisinternal AND {oids}";

const RULES: &str = "SELECT format('%s.%s.%s', n.nspname, c.relname, w.rulename), pg_get_ruledef(w.oid), 0 \
    FROM pg_rewrite w JOIN pg_class c ON c.oid = w.ev_class JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE {user} AND w.rulename <> '_RETURN' AND {oids}";

const POLICIES: &str = "SELECT format('%s.%s.%s', n.nspname, c.relname, y.polname), \
    format('CREATE POLICY %I ON %I.%I AS %s FOR %s TO %s%s%s;', y.polname, n.nspname, c.relname, \
      CASE WHEN y.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END, \
      CASE y.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END, \
      (SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, ', ' ORDER BY r) \
       FROM unnest(y.polroles) r), \
      ' USING (' || pg_get_expr(y.polqual, y.polrelid) || ')', ' WITH CHECK (' || pg_get_expr(y.polwithcheck, y.polrelid) || ')'), 0 \
    FROM pg_policy y JOIN pg_class c ON c.oid = y.polrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {user} AND {oids}";

const PRIVILEGES: &str = "SELECT n.nspname || '.' || c.relname, \
    (SELECT string_agg(format('GRANT %s ON %s%I.%I TO %s%s;', a.privilege_type, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' END, \
       n.nspname, c.relname, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, \
       CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END), E'\\n' ORDER BY a.grantee, a.privilege_type) \
     FROM aclexplode(c.relacl) a), 0 \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE {user} AND c.relacl IS NOT NULL AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND {oids}";

const RELATION_OWNERS: &str = "SELECT n.nspname || '.' || c.relname, \
    format('ALTER TABLE %I.%I OWNER TO %I;', n.nspname, c.relname, pg_get_userbyid(c.relowner)), 0 \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE {user} AND c.relowner <> n.nspowner AND c.relowner <> (SELECT oid FROM pg_roles WHERE rolname = session_user) \
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND {oids}";

const COMMENTS: &str = "SELECT o.type || ' ' || o.identity, format('COMMENT ON %s %s IS %L;', \
      CASE WHEN o.type LIKE '% column' THEN 'COLUMN' WHEN o.type LIKE '% constraint' THEN 'CONSTRAINT' ELSE upper(o.type) END, \
      o.identity, d.description), 0 \
    FROM pg_description d, LATERAL pg_identify_object(d.classoid, d.objoid, d.objsubid) o \
    WHERE d.objoid >= 16384 AND {oids} AND o.identity IS NOT NULL \
    AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = d.classoid AND x.objid = d.objoid AND x.deptype = 'e') \
    AND d.classoid <> 'pg_extension'::regclass";

const OTHERS: &str = "SELECT pg_describe_object(o.class, o.oid, 0), '-- ' || pg_describe_object(o.class, o.oid, 0), 0 FROM ( \
    SELECT 'pg_operator'::regclass::oid AS class, oid FROM pg_operator UNION ALL SELECT 'pg_cast'::regclass, oid FROM pg_cast \
    UNION ALL SELECT 'pg_event_trigger'::regclass, oid FROM pg_event_trigger \
    UNION ALL SELECT 'pg_publication'::regclass, oid FROM pg_publication \
    UNION ALL SELECT 'pg_foreign_server'::regclass, oid FROM pg_foreign_server) AS o \
    WHERE o.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.classid = o.class AND x.objid = o.oid AND x.deptype = 'e') \
    AND {oids}";
