"""Sentence pairs from files, TSV, TFDS, the sample and memory, and what bad input says."""

import gzip
import logging
import sys
import types

import pytest

from keras_transformer.data.corpus import DataError, ParallelCorpus


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def files(tmp_path, source, target, suffix=""):
    return write(tmp_path / f"a.pt{suffix}", source), write(tmp_path / f"a.en{suffix}", target)


def one_line(caught):
    message = str(caught.value)
    assert "\n" not in message
    assert isinstance(caught.value, (ValueError, FileNotFoundError))
    return message


def test_reads_two_files_again_and_again(tmp_path):
    source, target = files(tmp_path, "um\ndois\ntrês\n", "one\ntwo\nthree\n")
    for corpus in (ParallelCorpus.from_files(source, target), ParallelCorpus.from_files(str(source), str(target))):
        for _ in range(2):
            assert list(corpus) == [("um", "one"), ("dois", "two"), ("três", "three")]
        assert list(corpus.sources()) == ["um", "dois", "três"]
        assert list(corpus.targets()) == ["one", "two", "three"]
        assert (len(corpus), corpus.skipped) == (3, 0)
        assert str(source) in corpus.name


def test_two_passes_at_once_do_not_disturb_each_other(tmp_path):
    corpus = ParallelCorpus.from_files(*files(tmp_path, "um\ndois\n", "one\ntwo\n"))
    assert list(zip(corpus.sources(), corpus.targets(), strict=True)) == list(corpus)


def test_odd_characters_split_nothing_and_pairs_stay_aligned(tmp_path, caplog):
    odd = "a\x00b\u2028c\x85d\x0be\x1cf"
    source, target = files(
        tmp_path,
        f"{odd}\n\n  um \r\n \t\ndois\rdois\nfim\n\u2029\n\u00a0último".encode(),
        f"odd\nno source\none\r\n\n{odd}\n\r\nno source\nlast".encode(),
    )
    with caplog.at_level(logging.WARNING, "keras_transformer"):
        corpus = ParallelCorpus.from_files(source, target)
    assert list(corpus) == [(odd, "odd"), ("um", "one"), ("dois\rdois", odd), ("último", "last")]
    assert (len(corpus), corpus.skipped) == (4, 4)
    assert [record.getMessage() for record in caplog.records] == [
        f"{corpus.name}: skipped 4 of 8 pairs, one side is blank"
    ]


def test_byte_order_mark_is_no_text(tmp_path):
    corpus = ParallelCorpus.from_files(*files(tmp_path, b"\xef\xbb\xbfum\n", b"\xef\xbb\xbfone\n"))
    assert list(corpus) == [("um", "one")]


def test_gzip_is_read_as_it_is_and_beside_plain_text(tmp_path):
    source = write(tmp_path / "a.pt.gz", gzip.compress("um\ntrês".encode()))
    target = write(tmp_path / "a.en", "one\nthree\n")
    assert list(ParallelCorpus.from_files(source, target)) == [("um", "one"), ("três", "three")]


def test_several_files_a_side(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    sides = zip(files(first, "um\n", "one"), files(second, "dois", "two\n"), strict=True)
    assert list(ParallelCorpus.from_files(*map(list, sides))) == [("um", "one"), ("dois", "two")]
    with pytest.raises(ValueError, match="Received: 1 and 2"):
        ParallelCorpus.from_files([first / "a.pt"], [first / "a.en", second / "a.en"])


@pytest.mark.parametrize("missing", ["a.pt", "a.en"])
def test_missing_file(tmp_path, missing):
    source, target = files(tmp_path, "um\n", "one\n")
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        ParallelCorpus.from_files(source, target)
    assert one_line(caught).startswith(f"{tmp_path / missing}: no such file")
    assert isinstance(caught.value, DataError)


def test_folder_is_no_file(tmp_path):
    with pytest.raises(DataError, match="not a file"):
        ParallelCorpus.from_tsv(tmp_path)


@pytest.mark.parametrize(("source_lines", "target_lines"), [(3, 5), (5, 3), (1, 2)])
def test_other_number_of_lines_names_both(tmp_path, source_lines, target_lines):
    source, target = files(tmp_path, "um\n" * source_lines, "one\n" * target_lines)
    with pytest.raises(DataError, match="Align the files") as caught:
        ParallelCorpus.from_files(source, target)
    message = one_line(caught)
    assert f"{source} has {source_lines} lines but {target} has {target_lines}" in message


@pytest.mark.parametrize("bad_side", [0, 1])
def test_invalid_utf8_names_file_and_line(tmp_path, bad_side):
    contents = [b"um\ndois\n", b"one\ntwo\n"]
    contents[bad_side] = "bom\navião\n".encode("latin1")
    paths = files(tmp_path, *contents)
    with pytest.raises(DataError) as caught:
        ParallelCorpus.from_files(*paths)
    message = one_line(caught)
    assert message.startswith(f"{paths[bad_side]}, line 2: not UTF-8 (byte 0xe3 at position 3)")
    assert "iconv" in message


@pytest.mark.parametrize("empty_side", [0, 1])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_empty_file(tmp_path, empty_side, suffix):
    pack = gzip.compress if suffix else bytes
    contents = [pack(b"um\n"), pack(b"one\n")]
    contents[empty_side] = pack(b"")
    paths = files(tmp_path, *contents, suffix=suffix)
    with pytest.raises(DataError) as caught:
        ParallelCorpus.from_files(*paths)
    assert one_line(caught).startswith(f"{paths[empty_side]}: is empty")


def test_only_blank_lines(tmp_path):
    with pytest.raises(DataError, match=r"no sentence pair \(2 lines") as caught:
        ParallelCorpus.from_files(*files(tmp_path, "um\n\n", "\none\n"))
    one_line(caught)


@pytest.mark.parametrize(
    "content",
    [b"um\n", gzip.compress(b"um\n" * 999)[:-9], gzip.compress(b"um\n" * 9)[:12] + b"\xff" * 20],
    ids=["not gzip", "cut short", "damaged"],
)
def test_broken_gzip_names_the_file(tmp_path, content):
    source, target = write(tmp_path / "a.gz", content), write(tmp_path / "a.en", "one\n" * 999)
    with pytest.raises(DataError, match="not a whole gzip file") as caught:
        ParallelCorpus.from_files(source, target)
    message = one_line(caught)
    assert str(source) in message
    assert "download it again" in message


def test_tsv_columns(tmp_path):
    path = write(tmp_path / "a.tsv", '7\tone "1"\tum\n\n8\ttwo\tdois\textra\n9\tthree\t\n')
    corpus = ParallelCorpus.from_tsv(path, source_column=2, target_column=1)
    assert list(corpus) == [("um", 'one "1"'), ("dois", "two")]
    assert corpus.skipped == 2
    assert next(iter(ParallelCorpus.from_tsv(path))) == ("7", 'one "1"')


def test_tsv_with_too_few_columns_names_the_line(tmp_path):
    path = write(tmp_path / "a.tsv", "um\tone\ndois two\n")
    with pytest.raises(DataError) as caught:
        ParallelCorpus.from_tsv(path)
    message = one_line(caught)
    assert message.startswith(f"{path}, line 2: has 1 tab-separated columns, 2 are needed")
    assert "source_column" in message
    with pytest.raises(ValueError, match="Received: source_column=-1"):
        ParallelCorpus.from_tsv(path, source_column=-1)


def test_pairs_from_memory():
    corpus = ParallelCorpus.from_pairs((pair for pair in [(" um", "one "), ("", "two")]), name="mine")
    assert list(corpus) == list(corpus) == [("um", "one")]
    assert (corpus.name, corpus.skipped) == ("mine", 1)
    for wrong in ([("um",)], [("um", None)], ["um"]):
        with pytest.raises(ValueError, match="`pairs` must hold"):
            ParallelCorpus.from_pairs(wrong)
    with pytest.raises(DataError, match="no sentence pair"):
        ParallelCorpus.from_pairs([])


def test_sample_is_there_without_network():
    train = ParallelCorpus.sample("train", size=50)
    test = ParallelCorpus.sample("test", size=50)
    assert (len(train), len(test), train.skipped) == (50, 50, 0)
    assert not set(train.sources()) & set(test.sources())
    assert list(ParallelCorpus.sample("train", size=50)) == list(train)
    for arguments, message in (({"split": "dev"}, "split='dev'"), ({"size": 0}, "size=0")):
        with pytest.raises(ValueError, match=message):
            ParallelCorpus.sample(**arguments)


@pytest.fixture
def tfds(monkeypatch):
    """TensorFlow Datasets whose download is a stand-in."""
    module = types.ModuleType("tensorflow_datasets")
    module.as_numpy = iter
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
    return module


def test_tfds_gives_pairs(tfds):
    calls = []

    def load(name, **arguments):
        calls.append((name, arguments))
        return [("olá".encode(), b"hello"), (b"sim", b"yes")]

    tfds.load = load
    corpus = ParallelCorpus.from_tfds("ted_hrlr_translate/pt_to_en", split="validation")
    assert list(corpus) == list(corpus) == [("olá", "hello"), ("sim", "yes")]
    assert calls == [("ted_hrlr_translate/pt_to_en", {"split": "validation", "as_supervised": True})]


def test_dead_download_says_what_to_do(tfds):
    def load(name, **arguments):
        raise ConnectionError(
            "Failed to get url http://www.phontron.com/data/qi18naacl-dataset.tar.gz.\nHTTP code: 404"
        )

    tfds.load = load
    with pytest.raises(DataError) as caught:
        ParallelCorpus.from_tfds("ted_hrlr_translate/pt_to_en")
    message = one_line(caught)
    for part in ("ted_hrlr_translate/pt_to_en", "404", "ParallelCorpus.sample()", "from_files"):
        assert part in message


def test_missing_tfds_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"pip install \"keras-transformer-seq2seq\[tfds\]\""):
        ParallelCorpus.from_tfds("ted_hrlr_translate/pt_to_en")
