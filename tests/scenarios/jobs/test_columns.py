"""A job requests only the columns that it uses from its source."""

import inspect
import re
from types import ModuleType

import pytest

from shoal.scenarios.jobs.audit import analysis as audit
from shoal.scenarios.jobs.batch_sizes import analysis as batch_sizes
from shoal.scenarios.jobs.source.schema import ROW


@pytest.mark.parametrize("job", [audit, batch_sizes])
def test_each_column_that_is_used_is_asked_for(job: ModuleType) -> None:
    code = re.sub(r'""".*?"""', "", inspect.getsource(job), flags=re.S)
    asked = set(job.COLUMNS)
    assert asked <= set(ROW.names)
    assert set(re.findall(r'F\.col\("(\w+)"\)', code)) & set(ROW.names) <= asked
