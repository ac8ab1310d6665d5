"""The Vulkan device that a test can use, according to the program under test."""
import ctypes
import os
import pathlib
import re
import subprocess

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/abacus/model.gguf")
MOST_DEVICES = 8
PATIENCE = 300


def usable(program):
    """Returns the first device that the program opens, and ""; or None, and the reason."""
    why = ""
    for index in range(MOST_DEVICES):
        name = f"vulkan:{index}"
        done = subprocess.run([program, "run", MODEL, "-p", "1", "-n", "1", "--device", name],
                              capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 0:
            return name, ""
        why = why or done.stderr.strip()
        if "no device" in done.stderr:
            break
    return None, why


def validate():
    """Makes programs started after this fail at any message of the validation layer, if lavapipe
    has it. (The features of a simulated GPU differ from those of its driver.)"""
    if "WEFT_TEST_VULKAN" in os.environ:
        return
    folder = pathlib.Path(os.environ.get("VK_DRIVER_FILES", "/nowhere/icd.json")).parent / "layers"
    if (folder / "VkLayer_khronos_validation.json").exists():
        os.environ.setdefault("VK_LAYER_PATH", str(folder))
        os.environ.setdefault("WEFT_VULKAN_VALIDATE", "1")


def keep_kernels(folder):
    """Keeps Mesa's compiled kernels in that folder, even if a test has a cache of its own."""
    os.environ.setdefault("MESA_SHADER_CACHE_DIR", str(folder))


def machine_env(folder, library, gpus):
    """Returns an environment in which this library (other_gpus.cc) is the loader and lists these
    GPUs; library None: the loader can't be opened. folder: an empty folder for the loader."""
    path = pathlib.Path(folder) / "libvulkan.so.1"
    if library is None:
        path.write_bytes(b"")
    else:
        os.symlink(library, path)
    paths = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "WEFT_TEST_VULKAN": true_loader() or "", "WEFT_TEST_GPUS": gpus,
            "LD_LIBRARY_PATH": ":".join(filter(None, paths))}


def true_loader():
    """Returns the path of the loader that weft would open, or None."""
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return None
    maps = pathlib.Path("/proc/self/maps").read_text()
    return re.search(r"(/\S*libvulkan\.so\S*)", maps).group(1)
