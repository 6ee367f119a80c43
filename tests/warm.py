"""Kernels that begin with the large libraries and SmolLM2 read: forks of one process, instead of seconds for each.

`python warm.py serve SOCKET` loads them and forks a kernel for everybody who asks; it ends when its input ends.
`python warm.py kernel SOCKET CONNECTION_FILE` asks, and lives as long as that kernel. Of memnb the rooms are loaded that
read the packaged network, and no paper."""

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import sys
import threading

LIBRARIES = (
    "ipykernel.kernelapp",
    "pandas",
    "scipy.stats",
    "matplotlib.pyplot",
    "seaborn",
    "torch",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "sklearn.metrics",
    "peft",
    "fastcore.test",
)


def serve(path):
    "Load the libraries, then fork a kernel for each (connection file, folder, environment) that comes"
    from importlib import import_module
    from select import select

    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            import_module(name)
    read_network()
    (
        gc.collect(),
        gc.freeze(),
    )  # what forks share stays shared: no collection of theirs goes through it
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # who has ended is not waited for
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        print("ready", flush=True)
        while True:
            ready, _, _ = select([door, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            asked, _ = door.accept()
            if os.fork() == 0:
                return be_kernel(asked)
            asked.close()


def read_network():
    "Read the packaged network into the memory that forks share, by one thread: others would be lost in a fork"
    import torch

    from memnb import hf

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = hf.fetch()
    hf._network(str(folder), None, "float32", "cpu", hf.fingerprint(folder))
    torch.set_num_threads(threads)


def be_kernel(asked):
    "In a fork: become the kernel that was asked for, and end when who asked ends"
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, fds, *_ = socket.recv_fds(asked, 8, 2)
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        text += asked.recv(size - len(text))
    file, folder, env = json.loads(text)
    for fd, own in zip(fds, (1, 2)):
        os.dup2(fd, own)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    os.environ.pop("JPY_PARENT_PID", None)  # whose child it is not
    renew_threads()

    def watch():
        asked.recv(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    sys.argv, sys.path[0] = ["ipykernel_launcher", "-f", file], ""
    from ipykernel.kernelapp import launch_new_instance

    try:
        launch_new_instance()
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        end()


def renew_threads():
    """Give torch its threads anew, while only one is there to ask for them

    What the process before had is lost in a fork, and torch makes it anew for the first thread that computes. Of two
    at the same moment, as those of transformers that read weights, one finds none: "Invalid thread pool!".
    """
    import torch

    torch.set_num_threads(torch.get_num_threads())


def end():
    "End as a process does, but for setting free every object of the libraries, which takes seconds in a fork"
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os.killpg(0, signal.SIGKILL)  # and all that it began


def kernel(path, file):
    "Ask for a kernel, and wait for its end, or for the end of who started this"
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        text = json.dumps([file, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(s, [len(text).to_bytes(8, "big")], [1, 2])
        s.sendall(text)
        s.settimeout(1)
        while os.getppid() == parent:
            try:
                return s.recv(1)
            except TimeoutError:
                pass


if __name__ == "__main__":
    dict(serve=serve, kernel=kernel)[sys.argv[1]](*sys.argv[2:])
