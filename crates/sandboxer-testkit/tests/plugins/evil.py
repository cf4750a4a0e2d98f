#!/usr/bin/env python3
"""A strategy that works, and one thing that it does wrong: `options` say what, in which method, and how often.

    {"evil": "die", "in": "commit", "when": "half", "times": 1}

It speaks the wire by itself, so that what it does wrong is nobody's help or hindrance. In its state directory it notes each of its
processes (`pids`), each request (`calls`), and each time it did wrong (`evils`).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

METHODS = {
    "create": ["plan_id", "resource"],
    "read": ["ref", "path"],
    "write": ["ref", "path", "content"],
    "diff": ["ref"],
    "commit": ["ref", "request"],
    "rollback": ["ref"],
    "checkpoint": ["ref", "checkpoint_id"],
    "restore_checkpoint": ["ref", "checkpoint_id"],
    "cleanup": ["ref"],
}
GIB = 1 << 30
OPTIONS = {}
OUTPUT = threading.Lock()


# The wire.


def send(data):
    with OUTPUT:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def frame(message, attachment=b""):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    lengths = f"Content-Length: {len(body)}\r\nAttachment-Length: {len(attachment)}\r\n\r\n"
    return lengths.encode() + body + attachment


def next_request():
    """The next message, and how many bytes belong to it; None at the end."""
    lengths = {}
    while (line := sys.stdin.buffer.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        lengths[name.lower()] = int(value)
    if not lengths:
        return None
    message = json.loads(sys.stdin.buffer.read(lengths["content-length"]))
    return message, lengths.get("attachment-length", 0)


def note(file, text):
    with open(file, "a") as notes:
        notes.write(f"{text}\n")


def lines(file):
    if not os.path.exists(file):
        return 0
    with open(file) as notes:
        return len(notes.readlines())


# The strategy: a copy of a directory, and a copy of the copy.


def copy(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def files(top):
    for where, _, names in os.walk(top):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as content:
                yield os.path.relpath(path, top), content.read()


def entries(scratch):
    old, new = (dict(files(f"{scratch}/{side}")) for side in ("base", "tree"))
    for path in sorted(old | new):
        if path not in new:
            yield {"path": path, "kind": "deleted"}
        elif path not in old:
            yield {"path": path, "kind": "created", "new_size": len(new[path])}
        elif old[path] != new[path]:
            yield {"path": path, "kind": "modified", "new_size": len(new[path])}


def create(params, _):
    scratch = params["resource"]["properties"]["scratch"]
    original = params["resource"]["id"].removeprefix("path:")
    for side in ("base", "tree"):
        copy(original, f"{scratch}/{side}")
    return {"metadata": {"path": f"{scratch}/tree", "original": original}}, b""


def read(params, _):
    with open(f"{params['ref']['metadata']['path']}/{params['path']}", "rb") as content:
        return {}, content.read()


def write(params, content):
    path = f"{params['ref']['metadata']['path']}/{params['path']}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    return None, b""


def diff(params, _):
    return {"entries": list(entries(params["ref"]["metadata"]["scratch"]))}, b""


def commit(params, _):
    metadata = params["ref"]["metadata"]
    copy(metadata["path"], metadata["original"])
    copy(metadata["path"], f"{metadata['scratch']}/base")
    return None, b""


def rollback(params, _):
    copy(f"{params['ref']['metadata']['scratch']}/base", params["ref"]["metadata"]["path"])
    return None, b""


def kept(params):
    return f"{params['ref']['metadata']['scratch']}/kept/{params['checkpoint_id']}"


def checkpoint(params, _):
    copy(params["ref"]["metadata"]["path"], kept(params))
    return kept(params), b""


def restore_checkpoint(params, _):
    copy(kept(params), params["ref"]["metadata"]["path"])
    return None, b""


def cleanup(params, _):
    for name in ("base", "tree", "kept"):
        shutil.rmtree(f"{params['ref']['metadata']['scratch']}/{name}", ignore_errors=True)
    return None, b""


def initialize(params, _):
    shapes = {name: {"parameters": names, "required": len(names)} for name, names in METHODS.items()}
    return {
        "protocol": 1,
        "role": "strategy",
        "methods": shapes,
        "capabilities": {"file_tree": True, "checkpoints": True},
        "summary": "copies, and does wrong",
        "concurrency": OPTIONS.get("concurrency", 1),
    }, b""


# What it does wrong. Each gets the request, and says by None that the answer is its own business.


def answer_of(request, attachment):
    result, content = globals()[request["method"]](request["params"], attachment)
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}, content


def die(request, answer):
    print(OPTIONS.get("words", "goodbye, cruel world"), file=sys.stderr, flush=True)
    if "signal" in OPTIONS:
        os.kill(os.getpid(), OPTIONS["signal"])
        time.sleep(3600)
    os._exit(OPTIONS.get("status", 3))


def hang(request, answer):
    time.sleep(3600)


def raw(request, answer):
    """Writes that, and answers all the same."""
    send(OPTIONS["text"].encode())
    return answer


def say(request, answer):
    """A frame with that message, and nothing else."""
    send(frame(OPTIONS["message"].replace("@ID@", str(request["id"])).encode()))


def result(request, answer):
    answer[0]["result"] = filled(OPTIONS["result"], request["params"])
    return answer


def bare(request, answer):
    """The result alone, without the content."""
    return result(request, answer)[0], b""


def merge(request, answer):
    answer[0]["result"].update(filled(OPTIONS["result"], request["params"]))
    return answer


def lack(request, answer):
    for name in OPTIONS["methods"]:
        del answer[0]["result"]["methods"][name]
    answer[0]["result"]["methods"].update(OPTIONS.get("shapes", {}))
    return answer


def error(request, answer):
    return {"jsonrpc": "2.0", "id": request["id"], "error": OPTIONS["error"]}, b""


def long_error(request, answer):
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": "x" * OPTIONS["bytes"]}}, b""


def filled(value, params):
    """Words in braces stand for what the test cannot know."""
    if isinstance(value, dict):
        return {key: filled(part, params) for key, part in value.items()}
    if not isinstance(value, str) or "{" not in value:
        return value
    properties = params["resource"]["properties"]
    link = f"{properties['scratch']}/link"
    original = params["resource"]["id"].removeprefix("path:")
    if value == "{link}":
        os.symlink(original, link)
    return value.format(original=original, scratch=properties["scratch"], link=link)


def other_id(request, answer):
    answer[0]["id"] = OPTIONS["id"]
    return answer


def twice(request, answer):
    send(frame(*answer) * 2)


def flood(request, answer):
    """One GiB, or as much as is taken, and no answer."""
    ready = {
        "garbage": lambda: b"A" * (1 << 20),
        "lines": lambda: b"hello\n" * (1 << 18),
        "frame": lambda: b"A" * (1 << 20),
        "notifications": lambda: frame({"jsonrpc": "2.0", "method": "log", "params": ["A" * 1000] * 1000}),
        "answers": lambda: frame({"jsonrpc": "2.0", "id": 999999, "result": ["A" * 1000] * 1000}),
    }[OPTIONS["flood"]]()
    if OPTIONS["flood"] == "frame":
        send(f"Content-Length: {GIB}\r\n\r\n".encode())
    sent = 0
    while sent < GIB:
        send(ready)
        sent += len(ready)
    time.sleep(3600)


def swell(request, answer):
    """A message within the limit, which takes many times its size once it is taken apart."""
    zeros = b"[" + b"0," * (15 << 20) + b"0]"
    message = {
        "result": b'{"jsonrpc":"2.0","id":ID,"result":{"entries":[],"x":ZEROS}}',
        "id": b'{"jsonrpc":"2.0","id":ZEROS,"result":{"entries":[]}}',
        "error": b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"why","data":ZEROS}}',
        "ref": b'{"jsonrpc":"2.0","id":ID,"result":{"metadata":{"x":ZEROS}}}',
    }[OPTIONS["where"]]
    send(frame(message.replace(b"ID", b"%d" % request["id"]).replace(b"ZEROS", zeros)))


def chatter(request, answer):
    """Much on standard error, and then the answer."""
    line = b"." * OPTIONS.get("line", 4000) + b"\n"
    with os.fdopen(os.dup(2), "wb") as words:
        for _ in range(OPTIONS["bytes"] // len(line)):
            words.write(line)
    return answer


def orphan(request, answer):
    """A child keeps the pipes open after its parent's death; in a session of its own if it is asked for."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=OPTIONS.get("daemon", False))
    note("children", child.pid)
    if OPTIONS.get("dies", True):
        die(request, answer)
    return answer


def tell(request, answer):
    """Says a value of its environment wherever it can."""
    value = os.environ[OPTIONS["variable"]]
    print(f"my token is {value}", file=sys.stderr, flush=True)
    how = OPTIONS["how"]
    if how == "error":
        return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": f"no entry with {value}"}}, b""
    if how == "stdout":
        send(f"token {value}\n".encode())
    if how == "long stdout":
        send(f"{'x' * 46}{value}\n".encode())
    if how == "long line":
        print("x" * (4096 - 8) + value, file=sys.stderr, flush=True)
    os._exit(4)


# Serving.


def is_due(method, when):
    if OPTIONS.get("in") != method or OPTIONS.get("when", "worked") != when:
        return False
    if OPTIONS.get("start") and OPTIONS["start"] != lines("pids"):
        return False
    if lines("evils") >= OPTIONS.get("times", GIB):
        return False
    note("evils", method)
    return True


def do_wrong(request, answer):
    return globals()[OPTIONS["evil"]](request, answer)


def serve(request, attachment):
    method = request["method"]
    if is_due(method, "taken"):
        do_wrong(request, None)
    time.sleep(OPTIONS.get("slow", {}).get(method, 0))
    answer = answer_of(request, attachment)
    if is_due(method, "worked"):
        answer = do_wrong(request, answer)
    if answer and is_due(method, "half"):
        whole = frame(*answer)
        send(whole[: len(whole) // 2])
        do_wrong(request, None)
    if answer:
        send(frame(*answer))


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    note("pids", os.getpid())
    while request := next_request():
        message, attached = request
        if message["method"] == "initialize":
            OPTIONS.update(message["params"]["options"])
        note("calls", message["method"])
        if OPTIONS.get("notes"):
            note("params", json.dumps(message["params"]))
        if is_due(message["method"], "headed"):
            do_wrong(message, None)
        attachment = sys.stdin.buffer.read(attached)
        threading.Thread(target=serve, args=(message, attachment), daemon=True).start()
    if OPTIONS.get("stays"):
        time.sleep(3600)


main()
