"""Which file a configuration may be written over."""

import pytest

from flatout.base.errors import UsageError
from flatout.tune.config.config_file import check_target


def test_a_mere_copy_of_the_source_may_be_written_over_and_nothing_else(tmp_path):
    """Seen: a search that showed nothing left a copy, and the next one was refused because of it."""
    source, target = tmp_path / "x.yaml", tmp_path / "x_gpu_optimized.yaml"
    source.write_text("batch_size: 4\n")
    target.write_text("batch_size: 4\n")
    check_target(source, target, may_replace=False)
    target.write_text("batch_size: 8\n")
    with pytest.raises(UsageError):
        check_target(source, target, may_replace=False)
    check_target(source, target, may_replace=True)
