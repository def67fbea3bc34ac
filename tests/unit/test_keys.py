"""API keys and the file that holds their hashes."""

import json
import stat
from pathlib import Path

import pytest

from turnhold import keys


def test_keys_differ_and_only_their_hash_is_stored(tmp_path: Path):
    path = tmp_path / "deep" / "keys.json"
    first, second = keys.generate(), keys.generate()
    assert first != second
    keys.add(path, keys.StoredKey(name="a", sha256=keys.digest(first)))
    keys.add(path, keys.StoredKey(name="b", environment="other", sha256=keys.digest(second), permissions=()))
    assert [key.name for key in keys.load(path)] == ["a", "b"]
    assert first not in path.read_text()
    assert json.loads(path.read_text())[0] == {
        "name": "a",
        "environment": "default",
        "sha256": keys.digest(first),
        "permissions": list(keys.PERMISSIONS),
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_is_taken_once_per_environment(tmp_path: Path):
    path = tmp_path / "keys.json"
    key = keys.StoredKey(name="a", sha256=keys.digest("x"))
    keys.add(path, key)
    with pytest.raises(keys.KeysFileError, match="already holds a key named a in default"):
        keys.add(path, key)
    keys.add(path, key.model_copy(update={"environment": "other"}))


def test_a_key_is_removed_by_name_and_environment(tmp_path: Path):
    path = tmp_path / "keys.json"
    key = keys.StoredKey(name="a", sha256=keys.digest("x"))
    other = key.model_copy(update={"environment": "other"})
    for stored in (key, other):
        keys.add(path, stored)
    assert keys.remove(path, "a", "default") == key
    assert keys.load(path) == (other,)
    with pytest.raises(keys.KeysFileError, match="holds no key named a in default"):
        keys.remove(path, "a", "default")


def test_a_file_that_others_may_read_is_exposed(tmp_path: Path):
    path = tmp_path / "keys.json"
    keys.add(path, keys.StoredKey(name="a", sha256=keys.digest("x")))
    assert not keys.is_exposed(path)
    path.chmod(0o640)
    assert keys.is_exposed(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}", "valid array"),
        ("nonsense", "Invalid JSON"),
        ('[{"name": "a", "sha256": "short"}]', "0.sha256"),
        ('[{"name": "a b", "sha256": "' + "0" * 64 + '"}]', "0.name"),
        ('[{"name": "a", "sha256": "' + "0" * 64 + '", "permissions": ["all"]}]', "0.permissions"),
    ],
)
def test_a_file_that_makes_no_sense_is_said_in_one_line(tmp_path: Path, content: str, complaint: str):
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(keys.KeysFileError, match=complaint) as caught:
        keys.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path):
    with pytest.raises(keys.KeysFileError, match="No such file"):
        keys.load(tmp_path / "none.json")
