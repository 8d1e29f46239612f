from pathlib import Path

import pytest

from orthosparse.lab.data import DATA
from orthosparse.lab.data.sources import SOURCES, problems

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_every_set_but_the_embedded_one_has_a_source():
    assert set(SOURCES) == set(DATA) - {"digits"}


@pytest.mark.parametrize("name", SOURCES)
def test_every_download_is_verified_by_a_checksum_of_its_own_or_of_what_it_holds(name):
    source = SOURCES[name]
    for item in source.downloads:
        assert item.known_hash or item.name.removesuffix(".gz") in source.files
        assert item.known_hash is None or len(bytes.fromhex(item.known_hash)) == 32  # SHA-256, never MD5 alone
        assert all(url.startswith(("https://", "http://")) and url.endswith(item.name) for url in item.urls)
    assert source.downloads or source.advice


@pytest.mark.parametrize("name", SOURCES)
def test_an_empty_folder_has_problems(name, tmp_path):
    assert problems(SOURCES[name], tmp_path)


def test_a_slice_of_the_data_is_not_taken_for_the_whole():
    assert all("expected SHA-256" in line for line in problems(SOURCES["mnist"], FIXTURES))
    assert len(problems(SOURCES["cifar10"], FIXTURES)) == 6
