"""The text format: what is read, and that everything else is refused."""

import random
import shutil
import subprocess

import pytest

from reverie.errors import InvalidArgumentError
from reverie.serve import reverb_config, text_proto
from reverie.serve.text_proto import Message, Word

CONFIG = r"""
port: 8000  # a comment, with "quotes" and { braces
tables: {
  table_name: "my_table"
  sampler { prioritized: { priority_exponent: 0.8f } }
  remover < heap { min_heap: true } >
  max_size: 0x100, max_times_sampled: 5;
  rate_limiter: {
    min_size_to_sample: 1
    samples_per_insert: 1.5e0
    min_diff: -1.7976931348623157e+308
    max_diff: 1.7976931348623157e+308
  }
}
tables [
  { table_name: 'q' "ueue" sampler { fifo: True } remover { lifo: t } max_size: 010
    rate_limiter { min_size_to_sample: 1 samples_per_insert: 1 min_diff: -inf max_diff: inf } }
]
"""


def plain(message):
    """The fields as pairs, without their line numbers."""
    return [
        (field.name, plain(field.value) if isinstance(field.value, Message) else field.value)
        for field in message.fields
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 7", 7),
        ("a: -7", -7),
        ("a: - 7", -7),
        ("a: 0x1F", 31),
        ("a: -0x1f", -31),
        ("a: 017", 15),
        ("a: 0", 0),
        ("a: 1.5", 1.5),
        ("a: .5", 0.5),
        ("a: 5.", 5.0),
        ("a: 1e3", 1000.0),
        ("a: 1.5f", 1.5),
        ("a: inf", float("inf")),
        ("a: -Infinity", -float("inf")),
        ("a: 'x'", "x"),
        ('a: "x" \'y\'\n"z"', "xyz"),
        (r'a: "\n\t\"\\\101\x41"', '\n\t"\\AA'),
        ("a: 'Schr\u00f6dinger'", "Schr\u00f6dinger"),
        ("a: true", Word("true")),
        ("a: NAME", Word("NAME")),
        ("a {}", []),
        ("a: <b: 1>", [("b", 1)]),
    ],
)
def test_each_kind_of_value_is_read(text, value):
    assert plain(text_proto.read(text, "x")) == [("a", value)]


def test_elements_of_a_list_become_separate_fields():
    message = text_proto.read("a: [1, 2]\nb [{c: 3}, <c: 4>] d: []", "x")
    assert plain(message) == [("a", 1), ("a", 2), ("b", [("c", 3)]), ("b", [("c", 4)])]
    assert all(field.is_element for field in message.fields)


def test_fields_know_their_line():
    message = text_proto.read("# one\na: 1 b {\n c: 'x'\n}\n", "x")
    a, b = message.fields
    assert (a.line, b.line, b.value.fields[0].line) == (2, 2, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a 3", "x:1: '3' after 'a'; a ':' or a '{' must follow"),
        ("\na:", "x:2: the end of the text is not a value for 'a'"),
        ("a {\nb: 1\n", "x:3: the end of the text where 'a' of line 1 must be closed by '}'"),
        ("a { b: 1 >", "x:1: '>' where 'a' of line 1 must be closed by '}'"),
        ("}", "x:1: '}' closes nothing"),
        ("a: 'x", "x:1: a string that begins with ' has no end on its line"),
        ("a: 1x", "x:1: '1x' is not a number"),
        ("a: 09", "x:1: 'a' is 09; 8 and 9 are not octal digits"),
        ("a: " + "9" * 401, "x:1: 'a' is a number of 401 characters; the bound is 400"),
        ("a: [1 2]", "x:1: '2' in the list of 'a'; a ',' or a ']' must follow an element"),
        ("a: -b", "x:1: 'b' is not a value for 'a'"),
        ("a: -'b'", "x:1: 'a' is a negative string"),
        (r"a: '\q'", r"x:1: a string holds the unknown escape '\q'"),
        (r"a: '\xff'", "x:1: a string holds the byte 255; write it as the character it is"),
        ("3: 4", "x:1: '3' is where a field must begin"),
        ("[e]: 4", "x:1: '[' is where a field must begin"),
        ("a: @", "x:1: '@' means nothing here"),
        ("a{" * 101 + "}" * 101, "x:1: 'a' is nested deeper than 100 messages"),
        ("a" * (1 << 20) + ":", "x: 1,048,577 characters; the bound is 1,048,576"),
    ],
    ids=range(19),
)
def test_malformed_text_is_refused_with_its_line(text, says):
    with pytest.raises(InvalidArgumentError) as caught:
        text_proto.read(text, "x")
    assert says in str(caught.value)


def test_a_hundred_messages_may_be_nested():
    message = text_proto.read("a{" * 100 + "}" * 100, "x")
    for _ in range(100):
        (field,) = message.fields
        message = field.value
    assert message.fields == ()


def read_or_refused(text):
    """Whether ``text`` describes a server; any error but InvalidArgumentError fails the test."""
    try:
        reverb_config.read(text, "x")
    except InvalidArgumentError:
        return False
    return True


def test_a_truncated_configuration_is_valid_or_refused():
    assert read_or_refused(CONFIG)
    whole = [read_or_refused(CONFIG[:length]) for length in range(len(CONFIG))]
    # Only cuts after the first table, and after the second, are valid.
    assert 0 < sum(whole) < 30


@pytest.mark.parametrize("opening", ["a{", "a:{", "a<", "a:[", "a:[{", "tables{sampler{", "{", "["])
def test_endless_nesting_is_refused(opening):
    assert not read_or_refused(opening * 100_000)


@pytest.mark.parametrize("number", ["9" * 30, "-" + "9" * 30, "1e999", "0x" + "f" * 40, "9" * 5000])
@pytest.mark.parametrize("field", ["port: 8000", "max_size: 0x100", "max_times_sampled: 5"])
def test_huge_numbers_are_refused(field, number):
    name = field.partition(":")[0]
    assert not read_or_refused(CONFIG.replace(field, f"{name}: {number}"))


def test_a_randomly_changed_configuration_is_valid_or_refused():
    rng = random.Random(7)
    letters = [*sorted(set(CONFIG)), "\0", "\u00e9", "[", "]"]
    accepted = 0
    for _ in range(5_000):
        text = list(CONFIG)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            match rng.randrange(3):
                case 0:
                    text[at] = rng.choice(letters)
                case 1:
                    del text[at : at + rng.randint(1, 9)]
                case _:
                    other = rng.randrange(len(CONFIG))
                    text[at:at] = CONFIG[other : other + rng.randint(1, 30)]
        accepted += read_or_refused("".join(text))
    assert 100 < accepted < 4_000  # changes of comments, white space and digits are valid


PROTO = """
syntax = "proto2";
message M {
  optional int32 a = 1; optional double d = 2; optional string s = 3; optional bool b = 4;
  repeated M m = 5; repeated int64 n = 6;
}
"""


@pytest.mark.skipif(shutil.which("protoc") is None, reason="needs protobuf-compiler")
def test_texts_are_accepted_exactly_if_protobuf_accepts_them(tmp_path):
    (tmp_path / "m.proto").write_text(PROTO)
    texts = [
        "a: 1", "a: -1", "a: - 1", "a 1", "a: 0x1f", "a: 017", "a: 08", "a: 1x", "a: [1]",
        "d: 1.", "d: .5", "d: 1e5", "d: 1.5f", "d: inf", "d: -inf", "d: nan", "d: 1e999", "d: .",
        "s: 'x'", "s: 'x' \"y\"", "s: 'x", r"s: '\q'", r"s: '\101'", "s: x", "s: 1",
        "b: true", "b: t", "b: True", "b: 1", "b: 2", "b: yes",
        "m {}", "m: {}", "m <>", "m {", "m }", "m {>", "m [{}, <>]", "m: [{} {}]", "m: 1",
        "n: [1, 2]", "n: []", "n: [1 2]", "n: 1 n: 2", "n: 9223372036854775807",
        "a: 1, d: 2; b: t", "a: 1 # c", "# c", "", "a: 'x'", "a: 1 a: 2", "m { a: 1 } m { a: 2 }",
        "z: 1", "a: 2147483648", "a: -2147483648",
    ]  # fmt: skip
    schema = {
        "a": reverb_config._integer(32),
        "d": reverb_config._number,
        "s": reverb_config._text,
        "b": reverb_config._bool,
        "m": {},
        "n": reverb_config._integer(64),
    }

    def taken(text):
        reader = reverb_config._Reader("x")
        try:
            message = text_proto.read(text, "x")
            for name in ("m", "n"):  # the repeated fields
                for field in message.fields:
                    if field.name == name:
                        reader._checked(field, schema[name])
            others = tuple(field for field in message.fields if field.name not in ("m", "n"))
            reader._fields(Message(others), schema, "M")
        except InvalidArgumentError:
            return False
        return True

    wrong = []
    for text in texts:
        done = subprocess.run(
            ["protoc", f"-I{tmp_path}", "--encode=M", "m.proto"],
            input=text.encode(),
            capture_output=True,
            check=False,
        )
        if taken(text) != (done.returncode == 0):
            wrong.append((text, done.stderr))
    assert wrong == []
