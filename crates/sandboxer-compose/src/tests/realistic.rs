//! Stacks as people write them.

/// A name, the compose file, and other files that it needs.
pub(super) type Example = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Each is accepted with and without a network.
pub(super) const EXAMPLES: &[Example] = &[
    (
        "a web application with its database",
        r#"
version: "3.8"
x-logging: &logging
  logging:
    driver: json-file
    options: { max-size: "10m", max-file: "3" }
services:
  web:
    <<: *logging
    build:
      context: ..
      dockerfile: e2e/Dockerfile
      args:
        NODE_ENV: ${NODE_ENV:-test}
    container_name: shop_web
    ports:
      - "${PORT:-3000}:3000"
    environment:
      - DATABASE_URL=postgres://app:${DB_PASSWORD}@db:5432/app
      - REDIS_URL=redis://cache:6379/0
      - CI
    volumes:
      - ..:/app
      - /app/node_modules
      - ./conf/app.conf:/etc/app.conf:ro
    depends_on:
      db: { condition: service_healthy, restart: true }
      cache: { condition: service_started }
    restart: unless-stopped
    command: npm run start -- --host 0.0.0.0
  db:
    <<: *logging
    image: postgres:16-alpine
    env_file: .env
    environment:
      POSTGRES_PASSWORD: "${DB_PASSWORD:?set it}"
      POSTGRES_DB: app
    volumes:
      - pgdata:/var/lib/postgresql/data
      - ./init:/docker-entrypoint-initdb.d:ro
    healthcheck:
      test: ["CMD-SHELL", "pg_isready -U $${POSTGRES_USER:-postgres}"]
      interval: 5s
      timeout: 3s
      retries: 10
      start_period: 10s
    shm_size: 256mb
  cache:
    image: redis:7-alpine
    command: ["redis-server", "--save", "", "--appendonly", "no"]
    expose: ["6379"]
    tmpfs: [/data]
volumes:
  pgdata:
networks:
  default:
    driver: bridge
"#,
        &[("e2e/.env", "DB_PASSWORD=se$$cret\n"), ("e2e/init/1.sql", "select 1;\n")],
    ),
    (
        "browsers against a proxy and two networks",
        r#"
name: browsers
services:
  proxy:
    image: nginx:1.27
    ports:
      - target: 443
        published: "8443"
        protocol: tcp
        mode: host
      - "8000-8002:8000-8002"
    networks:
      front: { aliases: [shop.test, api.shop.test] }
      back:
    volumes:
      - type: bind
        source: ./nginx.conf
        target: /etc/nginx/nginx.conf
        read_only: true
    depends_on: [app]
    ulimits: { nofile: { soft: 20000, hard: 40000 } }
  app:
    image: ghcr.io/example/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    networks: [back]
    init: true
    user: "1000:1000"
    read_only: true
    cap_drop: [ALL]
    security_opt: [no-new-privileges]
    deploy:
      replicas: 2
      resources:
        limits: { cpus: "0.50", memory: 128M }
        reservations: { memory: 64M }
      restart_policy: { condition: on-failure }
    secrets: [token]
    configs:
      - source: settings
        target: /etc/settings.json
        mode: 0440
  e2e:
    image: mcr.microsoft.com/playwright:v1.47.0
    ipc: private
    working_dir: /e2e
    network_mode: service:proxy
    volumes: ["./tests:/e2e"]
    entrypoint: ["/bin/sh", "-c", "sleep infinity"]
    stop_grace_period: 1m30s
    stop_signal: SIGINT
    profiles: []
  debug:
    image: busybox
    profiles: [debug]
networks:
  front: { internal: false, ipam: { config: [{ subnet: 172.28.0.0/16 }] } }
  back: { internal: true, attachable: true }
secrets:
  token: { file: ./token.txt }
configs:
  settings: { file: ./settings.json }
"#,
        &[
            ("e2e/nginx.conf", "events {}\n"),
            ("e2e/token.txt", "t"),
            ("e2e/settings.json", "{}"),
            ("e2e/tests/a.spec.ts", ""),
        ],
    ),
    (
        "a stack of several files",
        r#"
include:
  - path: infra/compose.yml
services:
  api:
    extends: { file: common.yml, service: node }
    command: ["node", "yes", "22:22", "0o17", "on", "~", "$$HOME"]
    environment: { PORT: 8080, DEBUG: "false", FLOAT: 1.5, NONE: "" }
    ports: [8080]
    depends_on: { kafka: { condition: service_started } }
    extra_hosts: ["metrics.test:127.0.0.1"]
    labels: ["traefik.enable=true", "traefik.http.routers.api.rule=Host(`x`)"]
  worker:
    extends: { file: common.yml, service: node }
    scale: 2
    links: ["api:backend"]
    volumes_from: [api]
    pid: service:api
"#,
        &[
            (
                "e2e/common.yml",
                "services:\n  node:\n    build: { context: ., target: run, labels: { a: b }, shm_size: 64m }\n    \
                 image: example/node\n    pull_policy: build\n    environment: [LOG=info]\n    volumes: ['./src:/src']\n    \
                 tty: true\n    stdin_open: true\n    group_add: [20]\n    hostname: node\n    domainname: test\n    \
                 platform: linux/amd64\n    logging: { driver: none }\n    mem_limit: 64m\n    cpus: 0.25\n    pids_limit: 100\n",
            ),
            (
                "e2e/infra/compose.yml",
                "services:\n  kafka:\n    image: apache/kafka:3.8.0\n    volumes: ['logs:/logs', { type: volume, source: logs, \
                 target: /more, volume: { nocopy: true } }, { type: tmpfs, target: /tmp/x, tmpfs: { size: 1048576 } }]\n    \
                 healthcheck: { disable: true }\n    tmpfs: ['/run:size=16m,mode=1777']\nvolumes:\n  logs: { driver: local, \
                 driver_opts: { type: tmpfs, device: tmpfs, o: size=64m }, labels: { keep: 'no' } }\n",
            ),
            ("e2e/src/x.js", ""),
        ],
    ),
    ("the least", "services: {one: {image: alpine}}\n", &[]),
    (
        "odd texts",
        "services:\n  one:\n    image: alpine\n    environment:\n      A: \"yes\"\n      B: \"22:22\"\n      C: \"0o17\"\n      \
         D: \"a\\u0085b\\u2028c\\u007f\\uFEFFd\"\n      E: \"😀 é \\t\\n\\\"'\\\\\"\n      F: \"{{x}} %y @z `w` # v\"\n      G: 'null'\n    \
         labels: {\"a.b/c\": \"x: y\"}\n    command: [\"\", \" \", \"- a\", \"!!x\", \"*y\", \"&z\", \"?\", \"$$\", \"$${A:-b}\"]\n",
        &[],
    ),
];

/// A workspace with an example in it.
pub(super) fn workspace(example: &Example) -> super::Workspace {
    let workspace = super::Workspace::new(example.1);
    for (path, text) in example.2 {
        workspace.write(path, text);
    }
    workspace
}

#[test]
fn stacks_as_people_write_them_are_accepted() {
    for example in EXAMPLES {
        for open in [false, true] {
            let workspace = if open { workspace(example).open() } else { workspace(example) };
            let stack = workspace.stack();
            assert!(stack.is_ok(), "{}: {stack:#?}", example.0);
        }
    }
}

/// What was handed over can be read again, and comes to the same.
#[test]
fn what_comes_out_is_accepted_again() {
    for example in EXAMPLES {
        for open in [false, true] {
            let first = if open { workspace(example).open() } else { workspace(example) };
            let root = first.path().to_str().unwrap().to_owned();
            let sealed = format!("{root}/sealed");
            let stack = first.placed(&root, &sealed).unwrap();
            for copy in &stack.sealed {
                let to = first.path().join("sealed").join(&copy.name);
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                if copy.is_dir {
                    std::fs::create_dir_all(to).unwrap();
                } else {
                    std::fs::write(to, "").unwrap();
                }
            }
            for file in ["docker-compose.yml", ".env"] {
                _ = std::fs::remove_file(first.path().join("e2e").join(file));
            }
            first.write("e2e/docker-compose.yml", &stack.yaml);
            let again = first.placed(&root, &sealed).unwrap();
            first.write("e2e/docker-compose.yml", &again.yaml);
            let third = first.placed(&root, &sealed).unwrap();
            assert_eq!(again.yaml, third.yaml, "{}", example.0);
            assert_eq!(again.services.len(), stack.services.len());
            let facts = |stack: &crate::Stack| -> Vec<(String, String, bool, u32)> {
                let of = |one: &crate::Service| {
                    (one.name.clone(), one.image.clone(), one.has_healthcheck, one.replicas)
                };
                stack.services.iter().map(of).collect()
            };
            assert_eq!(facts(&stack), facts(&again), "{}", example.0);
            assert_eq!((stack.volumes, stack.networks), (again.volumes, again.networks));
        }
    }
}
