"""What a trial's child tells of the script's parts, once they are known."""

from __future__ import annotations

from typing import Any

from _flatout_agent.modes.driver import Driver, told
from _flatout_agent.trial.memory_accounting import Books
from _flatout_agent.trial.predicted_outcomes import foretold


def parts_of(driver: Driver, torch: Any, books: Books, fraction: float | None) -> dict[str, Any]:
    numerics = {name: kind().numerics(driver.scene) for name, kind in _hot_kinds().items()}
    loaders = [len_of(loader) for loader in driver.scene.loaders]
    return {
        "roots": [type(root).__name__ for root in driver.scene.roots],
        "device": driver.scene.device_type,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "optimizers": [type(optimizer).__name__ for optimizer in driver.scene.optimizers],
        "loader_sites": [use.site for use in driver.tape.clock.loaders.uses.values() if use.batches],
        "loaders": loaders,
        "workers": max((getattr(loader, "num_workers", 0) for loader in driver.scene.loaders), default=0),
        "batch_size": next((getattr(loader, "batch_size", None) for loader in driver.scene.loaders), None),
        "shapes": driver.scene.shapes(),
        "samples": max((samples_of(loader) for loader in driver.scene.loaders), default=0),
        "memory_limit": books.limit(driver.scene.device_type, fraction),
        "memory_capped": books.is_capped(driver.scene.device_type, fraction),
        "autocast": driver.scene.autocast_seen,
        "compiled": driver.scene.compiled_seen,
        **_first_loader(driver.scene.loaders),
        "numerics": numerics,
        "foretold": foretold(driver.scene),
        "early": told(driver.early),
    }


def len_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:
        return None


def samples_of(loader: Any) -> int:
    try:
        return len(loader.dataset)
    except Exception:
        return 0


def _first_loader(loaders: list[Any]) -> dict[str, Any]:
    """How the script itself has set up what it loads with: whether a key of its configuration has an effect is seen here."""
    names = ("pin_memory", "persistent_workers", "prefetch_factor")
    return {name: next((getattr(loader, name, None) for loader in loaders), None) for name in names}


def _hot_kinds() -> dict[str, Any]:
    from _flatout_agent.knobs.registry import KNOBS

    return {name: KNOBS[name] for name in ("workers", "persistent_workers", "prefetch_factor", "pin_memory")}
