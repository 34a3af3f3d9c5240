# The only file of flatout on the user's path. Python imports it at start-up because its folder is on PYTHONPATH.
# It must parse on any Python, leave sys.path as it would have been, run the user's own sitecustomize, and never raise.
# A trial that the agent must hold is the exception: it ends where the agent cannot begin.
import os
import sys

GAVE_UP = 96  # as in wire.py, which may be what cannot be imported


def _leave_the_path(here):
    # Ours is absolute; a relative one would have to ask for the working folder, which may be gone.
    sys.path[:] = [entry for entry in sys.path if not os.path.isabs(entry) or os.path.abspath(entry) != here]


def _start_agent(here):
    package = os.path.dirname(here)
    if sys.version_info < (3, 9) or not os.environ.get("FLATOUT_JOB"):
        return
    if os.environ.get("FLATOUT", "").lower() == "off" and not os.environ.get("FLATOUT_HELD"):
        return
    import importlib.util

    # By file, so that nothing else beside the agent (flatout's own dependencies) becomes importable to the script.
    spec = importlib.util.spec_from_file_location(
        "_flatout_agent", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["_flatout_agent"] = module
    spec.loader.exec_module(module)
    from _flatout_agent.start import begin

    begin()


def _chain():
    # Ours shadowed the user's sitecustomize: give the name back to it. Where there is none, the ImportError goes up
    # to `site`, which expects just that, and sys.modules is left without the name, as it would have been.
    del sys.modules["sitecustomize"]
    import sitecustomize  # noqa: F401


_here = os.path.dirname(os.path.abspath(__file__))
_leave_the_path(_here)
try:
    _start_agent(_here)
except BaseException as error:  # a fault of ours never stops the user's script
    if os.environ.get("FLATOUT_HELD"):
        try:
            os.write(
                2, ("flatout: the trial was not started: %s: %s\n" % (type(error).__name__, error)).encode("ascii", "replace")
            )
        finally:
            os._exit(GAVE_UP)
    if os.environ.get("FLATOUT_DEBUG") or not isinstance(error, Exception):
        raise
_chain()
