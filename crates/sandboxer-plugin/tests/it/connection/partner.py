"""The other end of a connection: does what a request says, each in a thread of its own."""

import json
import os
import sys
import threading
import time

OUTPUT = threading.Lock()
STATE = threading.Condition()
SEEN = []
PILE = []
UNDER_WAY = {"now": 0, "most": 0}


def answer(request, result, content=b""):
    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
    with OUTPUT:
        header = f"Content-Length: {len(body)}\r\nAttachment-Length: {len(content)}\r\n\r\n"
        sys.stdout.buffer.write(header.encode() + body + content)
        sys.stdout.buffer.flush()


def handle(request, content):
    method, params = request["method"], request["params"]
    if method == "echo":
        time.sleep(params.get("ms", 0) / 1000)
        return answer(request, params, content)
    if method == "pile":
        # The last comes first, once all are there.
        PILE.append(request)
        if len(PILE) == params["of"]:
            for one in reversed(PILE):
                answer(one, one["params"])
        return None
    if method == "seen":
        return answer(request, {"seen": SEEN, "most": UNDER_WAY["most"]})
    if method == "die":
        os._exit(5)
    return None  # never


def counted(request, content):
    with STATE:
        UNDER_WAY["now"] += 1
        UNDER_WAY["most"] = max(UNDER_WAY["most"], UNDER_WAY["now"])
    if request["method"] == "echo":
        time.sleep(0.001)
    with STATE:
        UNDER_WAY["now"] -= 1
    handle(request, content)


def main():
    while True:
        lengths = {}
        while (line := sys.stdin.buffer.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            lengths[name.lower()] = int(value)
        if not lengths:
            return
        request = json.loads(sys.stdin.buffer.read(lengths["content-length"]))
        SEEN.append(request["method"])
        with open("noted", "a") as notes:
            notes.write(request["method"] + "\n")
        if request["method"] == "deaf":
            time.sleep(3600)
        content = sys.stdin.buffer.read(lengths.get("attachment-length", 0))
        threading.Thread(target=counted, args=(request, content), daemon=True).start()


main()
