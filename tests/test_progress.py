"""Long work shows how far it has come, in a terminal alone."""

import io

import pytest

import keras_transformer as kt
from keras_transformer.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def slow(monkeypatch):
    """A clock in which every look takes a second."""
    seconds = iter(range(10**6))
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("stream", "drawn"), [(io.StringIO(), False), (Terminal(), True)])
def test_progress_is_for_terminals(stream, drawn):
    with Progress("translating", 10, stream=stream) as progress:
        progress(0)
        progress(5)
    assert bool(stream.getvalue()) == drawn
    if drawn:
        last = stream.getvalue().split("\r")[-1]
        assert " 50%" in last
        assert "5 lines" in last
        assert last.endswith("\n")


def test_what_is_done_at_once_draws_nothing():
    stream = Terminal()
    with Progress("translating", 10, stream=stream) as progress:
        progress(10)
    assert stream.getvalue() == ""


def test_a_note_is_shown_at_once():
    stream = Terminal()
    with Progress("exporting", 4, stream=stream) as progress:
        progress(3, "a fresh process")
    assert "exporting" in stream.getvalue()
    assert " 75%  a fresh process" in stream.getvalue()


@pytest.mark.usefixtures("slow")
def test_items_are_counted_as_they_are_taken():
    stream = Terminal()
    with Progress("tokenizing", 600, unit="pairs", stream=stream) as progress:
        assert list(progress.over(range(600))) == list(range(600))
    assert "256 pairs" in stream.getvalue()
    assert stream.getvalue().split("\r")[-1].startswith("\x1b[2Ktokenizing  " + "█" * 30 + " 100%  600 pairs")
    with Progress("nothing", None, stream=stream) as progress:
        assert list(progress.over([])) == []


class Gone(Terminal):
    def write(self, text):
        raise OSError(5, "Input/output error")


class Narrow(Terminal):
    """A stream that somebody has put in the place of standard error: it has what print needs, and no more."""

    isatty = property()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("stream", [Gone(), Narrow(), None], ids=["gone", "no isatty", "none"])
def test_a_stream_that_fails_does_not_stop_the_work(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    done = []
    with Progress("translating", 600) as progress:
        done.extend(progress.over(range(600)))
    assert len(done) == 600


@pytest.mark.usefixtures("slow")
def test_an_error_of_the_work_is_not_hidden_by_a_closed_stream():
    def work():
        with Progress("translating", 10, stream=stream) as progress:
            progress(5)
            stream.close()
            raise ArithmeticError("of the work")

    stream = Terminal()
    with pytest.raises(ArithmeticError, match="of the work"):
        work()


@pytest.mark.usefixtures("slow")
def test_a_line_is_not_wider_than_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    with Progress("tokenizing\na corpus", 1000, unit="pairs", stream=stream) as progress:
        progress(3)
        progress(700)
    for line in stream.getvalue().removesuffix("\n").split("\r\x1b[2K"):
        assert len(line) < 40
        assert "\n" not in line


@pytest.mark.usefixtures("slow")
def test_items_that_are_left_are_not_counted():
    stream = Terminal()
    with Progress("tokenizing", 1000, unit="pairs", stream=stream) as progress:
        for number in progress.over(range(1000)):
            if number == 699:
                break
    assert "700 pairs" in stream.getvalue().split("\r")[-1]


def test_learning_a_vocabulary_says_so_in_a_terminal_alone(monkeypatch):
    sentences = [side for pair in kt.ParallelCorpus.sample("validation") for side in pair]
    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr("sys.stderr", stream)
        kt.Tokenizer.train(sentences, vocabulary_size=400)
        assert (f"vocabulary  learning 400 pieces from {len(sentences):,} sentences" in stream.getvalue()) == drawn
        assert bool(stream.getvalue()) == drawn
