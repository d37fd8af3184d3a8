"""A translator on disk: the same texts in a fresh process, and whole or not there."""

import json

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.serving.files import new_directory

FRESH = """
import json, sys
import keras_transformer as kt
translator = kt.Translator.load(sys.argv[1])
texts = json.loads(sys.argv[2])
print(json.dumps([[row[0].text, row[0].score] for row in translator.translate(texts)]))
"""


@pytest.mark.slow
def test_a_fresh_process_translates_alike(translator, texts, tmp_path, run_python):
    translator.save(tmp_path / "translator")
    output = run_python(FRESH, tmp_path / "translator", json.dumps(texts))
    found = json.loads(output.splitlines()[-1])
    expected = [row[0] for row in translator.translate(texts)]
    assert [text for text, _ in found] == [hypothesis.text for hypothesis in expected]
    np.testing.assert_allclose([score for _, score in found], [h.score for h in expected], atol=1e-5)


def test_settings_and_tokenizers_come_back(model, tokenizers, tmp_path):
    settings = {
        "num_beams": 2,
        "length_penalty": 0.9,
        "max_length": 40,
        "min_target_length": 3,
        "max_target_length": 30,
        "coverage_penalty": 0.1,
        "no_repeat_ngram_size": 3,
    }
    kt.Translator(model, *tokenizers, **settings).save(tmp_path / "translator")
    loaded = kt.Translator.load(tmp_path / "translator")
    assert loaded.settings == settings
    assert loaded.source_tokenizer.model_bytes == tokenizers[0].model_bytes
    assert loaded.target_tokenizer.model_bytes == tokenizers[1].model_bytes


def test_one_tokenizer_for_both_sides_stays_one(tokenizers, tmp_path):
    tokenizer = tokenizers[0]
    model = kt.Transformer(
        tokenizer.vocabulary_size, num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=8
    )
    translator = kt.Translator(model, tokenizer)
    translator.save(tmp_path / "translator")
    loaded = kt.Translator.load(tmp_path / "translator")
    assert loaded.target_tokenizer is loaded.source_tokenizer
    for ours, theirs in zip(loaded.model.weights, model.weights, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(ours), keras.ops.convert_to_numpy(theirs))


def test_a_saved_translator_is_replaced_as_a_whole(model, tokenizers, tmp_path):
    directory = tmp_path / "translator"
    kt.Translator(model, *tokenizers, num_beams=2).save(directory)
    (directory / "left over").touch()
    kt.Translator(model, *tokenizers, num_beams=3).save(directory)
    assert kt.Translator.load(directory).num_beams == 3
    assert not (directory / "left over").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["translator"]


def test_a_foreign_directory_is_left_alone(translator, tmp_path):
    directory = tmp_path / "thesis"
    directory.mkdir()
    (directory / "chapter.txt").write_text("years of work")
    with pytest.raises(ValueError, match="thesis exists and is no saved translator: give another directory"):
        translator.save(directory)
    assert (directory / "chapter.txt").read_text() == "years of work"
    with pytest.raises(FileNotFoundError, match="thesis: no saved translator"):
        kt.Translator.load(directory)


def test_a_file_in_the_way_is_left_alone(translator, tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(ValueError, match="file exists and is no saved translator"):
        translator.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "text"


def test_a_missing_translator_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no saved translator"):
        kt.Translator.load(tmp_path / "nowhere")


def write(directory, text, **options):
    with new_directory(directory, **options) as temporary:
        assert temporary.parent == directory.parent
        assert temporary.name.startswith(".")  # no server takes it for a version
        (temporary / "file").write_text(text)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_an_exception_leaves_the_old_directory(tmp_path):
    write(tmp_path / "a" / "1", "old")
    with pytest.raises(TypeError):
        write(tmp_path / "a" / "1", text=None, replace=True)
    assert (tmp_path / "a" / "1" / "file").read_text() == "old"
    assert names(tmp_path / "a") == ["1"]


def test_an_interruption_leaves_nothing_new(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_directory(tmp_path / "1"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def write_too_late(directory):
    with new_directory(directory):
        write(directory.with_name("other"), "theirs")
        directory.with_name("other").rename(directory)


def test_what_another_process_wrote_meanwhile_stays(tmp_path):
    with pytest.raises(FileExistsError, match="1 exists already"):
        write_too_late(tmp_path / "1")
    assert (tmp_path / "1" / "file").read_text() == "theirs"
    assert names(tmp_path) == ["1"]


def test_what_a_killed_process_left_is_no_obstacle(tmp_path):
    """In a container the next process often has the number of the last one."""
    write(tmp_path / "1", "old")
    interrupted = new_directory(tmp_path / "1", replace=True)
    (interrupted.__enter__() / "half").touch()
    assert len(names(tmp_path)) == 2
    write(tmp_path / "1", "new", replace=True)
    assert names(tmp_path / "1") == ["file"]
    assert (tmp_path / "1" / "file").read_text() == "new"


def test_a_failed_exchange_brings_the_old_directory_back(tmp_path):
    write(tmp_path / "1", "old")
    with pytest.raises(FileNotFoundError), new_directory(tmp_path / "1", replace=True) as temporary:
        temporary.rmdir()  # the last step, the renaming, cannot be done
    assert (tmp_path / "1" / "file").read_text() == "old"
    assert names(tmp_path) == ["1"]


def test_a_directory_without_a_translator_names_where_one_is(translator, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is missing\); give the directory that `Translator.save`"):
        kt.Translator.load(tmp_path / "run")
    translator.save(tmp_path / "run" / "translator")
    with pytest.raises(FileNotFoundError, match=rf"translator.json is missing\); give {tmp_path}/run/translator\.$"):
        kt.Translator.load(tmp_path / "run")


@pytest.mark.parametrize("damage", ["target.spm", "source.spm", "model.keras"])
def test_a_missing_file_is_named(model, tokenizers, tmp_path, damage):
    """Without its target tokenizer, a translator must not take the source's for it."""
    kt.Translator(model, *tokenizers).save(tmp_path / "translator")
    (tmp_path / "translator" / damage).unlink()
    with pytest.raises((FileNotFoundError, ValueError), match=damage):
        kt.Translator.load(tmp_path / "translator")


def test_another_tokenizer_of_the_same_size_is_refused(model, tokenizers, tmp_path):
    kt.Translator(model, *tokenizers).save(tmp_path / "translator")
    tokenizers[0].save(tmp_path / "translator" / "target.spm")
    with pytest.raises(ValueError, match="not those that were saved"):
        kt.Translator.load(tmp_path / "translator")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_description_is_named(model, tokenizers, tmp_path, content):
    kt.Translator(model, *tokenizers).save(tmp_path / "translator")
    (tmp_path / "translator" / "translator.json").write_text(content)
    with pytest.raises(ValueError, match=r"translator.json is damaged: save the translator again"):
        kt.Translator.load(tmp_path / "translator")


@pytest.mark.parametrize("size", [0, 1000])
def test_a_cut_model_file_is_named(model, tokenizers, tmp_path, size):
    kt.Translator(model, *tokenizers).save(tmp_path / "translator")
    path = tmp_path / "translator" / "model.keras"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model.keras is missing or damaged"):
        kt.Translator.load(tmp_path / "translator")


def test_a_link_to_a_translator_stays_a_link(model, tokenizers, tmp_path):
    kt.Translator(model, *tokenizers, num_beams=2).save(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    kt.Translator(model, *tokenizers, num_beams=3).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert kt.Translator.load(tmp_path / "real").num_beams == 3


def test_a_model_that_pads_with_another_id_is_refused(tokenizers):
    model = kt.Transformer(
        tokenizers[0].vocabulary_size,
        tokenizers[1].vocabulary_size,
        share_embeddings=False,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_model=8,
        num_heads=2,
        d_ff=8,
        pad_token_id=1,
    )
    with pytest.raises(ValueError, match=r"must pad with 0.*pad_token_id=1"):
        kt.Translator(model, *tokenizers)
