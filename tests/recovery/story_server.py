"""Starts stories without Spark by forking a process that has imported all modules: half the CPU time of a new process.

Each line of the input is a request in JSON, answered by one line. An object with ``arguments``, ``environment`` and
``log`` starts a story; the answer is its process id. A process id asks for the exit code, null while the story runs.
"""

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path


def start(story, request):
    """Fork; the child runs the story."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        os.chdir(request["arguments"][0])
        os.environ.clear()
        os.environ.update(request["environment"])
        story.main(story.parsed(request["arguments"]))
        code = 0
    except BaseException:  # noqa: BLE001 - printed, as Python does at the end of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def exit_code(child):
    """Exit code, negative for a signal; ``None`` while the process runs."""
    ended, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def main():
    path = Path(__file__).with_name("story.py")
    spec = importlib.util.spec_from_file_location("story", path)
    story = importlib.util.module_from_spec(spec)
    sys.modules["story"] = story
    spec.loader.exec_module(story)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(exit_code(request) if isinstance(request, int) else start(story, request)), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
