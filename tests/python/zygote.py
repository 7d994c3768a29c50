"""A Python that has imported torch without its entry points, and forks for each piece of code that it is given.

Reads one JSON object per line: code, path (put in front of sys.path), environment. The child first does what the end of
`import torch` does, runs the code, and the answer is one JSON line with returncode, stdout and stderr.
"""

import json
import os
import sys
import tempfile
import traceback

import torch


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                be_fresh(request)
            _, status = os.waitpid(child, 0)
            out.seek(0)
            err.seek(0)
            answer = {"returncode": os.waitstatus_to_exitcode(status), "stdout": out.read(), "stderr": err.read()}
        print(json.dumps(answer), flush=True)


def be_fresh(request: dict) -> None:
    code = 1
    try:
        os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD")  # ours, not the test's
        os.environ.update(request["environment"])
        sys.path[:0] = request["path"]
        if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0":
            torch._import_device_backends()
        exec(compile(request["code"], "<test>", "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
