"""What tests of commands share."""

import pytest
from typer.testing import CliRunner

from equipoise.cli.commands import app


@pytest.fixture
def printed():
    """Function that runs a command and gives its standard output."""

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == code, result.output + repr(result.exception)
        return result.stdout

    return run


@pytest.fixture
def refused():
    """Function that runs a command which must fail with an error of ours; gives the error."""

    def run(kind, *arguments):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert isinstance(result.exception, kind), result.output + repr(result.exception)
        return str(result.exception)

    return run
