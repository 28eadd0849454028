"""Runs tests of azure-cosmos, as its source distribution has them, against a server.

    suite.py FOLDER VERSION ENDPOINT FILE... [-- PYTEST ARGUMENT...]

FOLDER keeps the distribution and a virtual environment. The last line of output is a JSON object: of each test whether it
passed, failed or was skipped. Status 77: what is needed is not there, and the line says what.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as tree

# What the tests import of the repository that they come from, and the distribution leaves out.
STUBS = {
    "__init__.py": "",
    "azure_recorded_testcase.py": "import os\n\n\ndef get_credential(is_async=False, **_):\n    return os.environ['ACCOUNT_KEY']\n",
    "helpers.py": "def is_live():\n    return True\n",
}
# Leaves out tests by the names of their functions.
PLUGIN = '''
import os


def pytest_collection_modifyitems(config, items):
    names = set(os.environ["LEFT_OUT"].split(";"))

    def is_left_out(item):
        name = item.originalname.removesuffix("_async")
        client = "asynchronous" if item.path.name.endswith("_async.py") else "synchronous"
        return name in names or f"{name} {client}" in names

    left_out = [item for item in items if is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
'''
# Any key will do where the server has none; this says "ebbtide".
KEY = "ZWJidGlkZQ=="


def missing(what):
    print(what)
    sys.exit(77)


def fetch(folder, version):
    """The tests' folder, and the interpreter that has the SDK."""
    source = folder / f"azure_cosmos-{version}"
    older = folder / f"azure-cosmos-{version}"
    python = folder / f"venv-{version}" / "bin" / "python"
    if not python.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], capture_output=True, text=True)
        if made.returncode != 0:
            missing(f"there is no venv: {made.stderr or made.stdout}")
    if not source.exists() and not older.exists():
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
        for command in (
            ["install", "setuptools", "wheel", f"azure-cosmos=={version}", "pytest", "pytest-asyncio", "aiohttp", "azure-identity"],
            ["download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "-d", str(folder), f"azure-cosmos=={version}"],
        ):
            done = subprocess.run(pip + command, capture_output=True, text=True)
            if done.returncode != 0:
                missing(f"the registry gives no azure-cosmos {version}: {done.stderr.strip()[-300:]}")
        for archive in folder.glob(f"azure*cosmos-{version}.tar.gz"):
            with tarfile.open(archive) as opened:
                opened.extractall(folder, filter="data")
    source = source if source.exists() else older
    tests = next((place for place in (source / "tests", source / "test") if place.exists()), None)
    if tests is None:
        missing(f"azure-cosmos {version} comes without tests")
    return tests, python


def main():
    arguments, extra = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, extra = arguments[:at], arguments[at + 1:]
    folder, version, endpoint, *files = arguments
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tests, python = fetch(folder, version)
    stubs = folder / "stubs" / "devtools_testutils"
    stubs.mkdir(parents=True, exist_ok=True)
    for name, text in STUBS.items():
        (stubs / name).write_text(text)
    (stubs.parent / "left_out.py").write_text(PLUGIN)
    environment = {
        **os.environ,
        "PYTHONPATH": str(stubs.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ACCOUNT_HOST": endpoint,
        "ACCOUNT_KEY": KEY,
        "LEFT_OUT": ";".join(skipped()),
    }
    report = folder / f"report-{os.getpid()}.xml"
    command = [
        str(python), "-m", "pytest", "-q", "--tb=native", "-p", "no:cacheprovider", "-p", "left_out", "-o", "asyncio_mode=strict",
        "-W", "ignore", f"--junitxml={report}", *files, *extra,
    ]
    run = subprocess.run(command, cwd=tests, env=environment, stdout=sys.stderr)
    if not report.exists():
        sys.exit(f"pytest ended with {run.returncode} and without a report")
    print(json.dumps(outcomes(report)))
    report.unlink()


def skipped():
    """The indented lines of the list."""
    lines = pathlib.Path(__file__).with_name("skipped.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.startswith(" ")]


def outcomes(report):
    told = {}
    for case in tree.parse(report).getroot().iter("testcase"):
        name = case.get("classname", "").rsplit(".", 1)
        name = f"{name[0].rsplit('.', 1)[-1]}::{case.get('name')}"
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            told[name] = "failed"
        elif "skipped" in kinds:
            told[name] = "skipped"
        else:
            told.setdefault(name, "passed")
    return told


main()
