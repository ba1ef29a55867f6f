"""Translate schemas: text as in SQL, JSON Schema, and types of Arrow.

The language has BIGINT, INT, SMALLINT, TINYINT, DOUBLE, FLOAT, BOOLEAN, STRING, BINARY, DATE, TIMESTAMP,
DECIMAL(precision, scale), ARRAY<type>, STRUCT<name: type, ...> and MAP<STRING, type>.

A schema of this module has the names of the messages' fields. `silver_schema` gives the columns of the table: some
names are reserved, and Delta refuses some characters in names.
"""

import re
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.types as pat

from mosq.pipeline.rows.tables import KEY_FIELDS, KEYS, RESCUED

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "SMALLINT": pa.int16(),
    "TINYINT": pa.int8(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
SYNONYMS = {"LONG": "BIGINT", "INTEGER": "INT", "SHORT": "SMALLINT", "BYTE": "TINYINT", "REAL": "FLOAT"}
SYNONYMS |= {"DEC": "DECIMAL", "NUMERIC": "DECIMAL"}
KNOWN = ", ".join((*PLAIN, "DECIMAL(10, 2)", "ARRAY<type>", "STRUCT<name: type>", "MAP<STRING, type>"))
WORDS = {type: word for word, type in PLAIN.items()}
PRECISION_MAX = 38
DEPTH_MAX = 50  # of a declared schema
TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|(\w+)|([<>(),:]))")
REFUSED = re.compile(r"[ ,;{}()\n\t=`]")  # Delta allows no such characters in names
RESERVED = (*KEYS, RESCUED)


class SchemaError(ValueError):
    """Explain what is wrong in a schema."""


# ---- text to types


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.tokens = list(self._tokens())

    def _tokens(self) -> "Iterator[tuple[str, int]]":
        at = 0
        while self.text[at:].strip():
            found = TOKEN.match(self.text, at)
            if found is None:
                rest = self.text[at:].strip()
                raise SchemaError(f"unexpected {rest[:20]!r}; a name with other characters stands in `backticks`")
            yield found[0].strip(), found.start()
            at = found.end()
        yield "", at

    @property
    def token(self) -> str:
        return self.tokens[self.at][0]

    def wrong(self, expected: str) -> NoReturn:
        got = f"`{self.token}`" if self.token else "the end"
        raise SchemaError(f"expected {expected} after {self.text[: self.tokens[self.at][1]]!r}; got {got}")

    def take(self, wanted: str) -> None:
        if self.token != wanted:
            self.wrong(f"`{wanted}`")
        self.at += 1

    def name(self) -> str:
        token = self.token
        if not token or token in "<>(),:":
            self.wrong("a name")
        self.at += 1
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        if not name:
            raise SchemaError("a name is empty")
        return name

    def fields(self, end: str) -> list[pa.Field]:
        found = []
        while True:
            name = self.name()
            if end and self.token == ":":
                self.at += 1
            found.append(pa.field(name, self.type()))
            if self.token == end:
                self.at += 1
                return found
            self.take(",")

    def type(self) -> pa.DataType:
        word = self.token.upper()
        word = SYNONYMS.get(word, word)
        if self.depth > DEPTH_MAX:
            raise SchemaError(f"more than {DEPTH_MAX} levels")
        if word in PLAIN:
            self.at += 1
            return PLAIN[word]
        if word not in ("DECIMAL", "ARRAY", "STRUCT", "MAP"):
            self.wrong(f"a type ({KNOWN})")
        self.at += 1
        if word == "DECIMAL":
            return self._decimal()
        self.depth += 1
        self.take("<")
        if word == "STRUCT":
            type = pa.struct(self.fields(">"))
        else:
            if word == "MAP":
                if self.type() != pa.string():
                    raise SchemaError("the keys of a MAP are STRING")
                self.take(",")
            inner = self.type()
            self.take(">")
            type = pa.list_(inner) if word == "ARRAY" else pa.map_(pa.string(), inner)
        self.depth -= 1
        return type

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self.token == "(":
            self.at += 1
            precision = self._number()
            if self.token == ",":
                self.at += 1
                scale = self._number()
            self.take(")")
        if not 1 <= precision <= PRECISION_MAX or not 0 <= scale <= precision:
            raise SchemaError(f"DECIMAL({precision}, {scale}): expected 1 to {PRECISION_MAX} digits and fewer after it")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if not (self.token.isascii() and self.token.isdigit() and len(self.token) < 4):
            self.wrong("a number")
        self.at += 1
        return int(self.tokens[self.at - 1][0])


def schema(text: str) -> pa.Schema:
    """Return the schema of a text such as "temperature DOUBLE, tags ARRAY<STRING>". Raises SchemaError."""
    parser = _Parser(text)
    found = pa.schema(parser.fields(""))
    check(found)
    return found


def check(found: pa.Schema) -> None:
    """Raise SchemaError if two names are one for readers of tables: they do not distinguish case."""
    for within, names in _levels(pa.struct(list(found)), ""):
        folded = [column(name, top=not within).lower() for name in names]
        if double := next((one for one in folded if folded.count(one) > 1), None):
            raise SchemaError(f"each name once{within}; {double} occurs twice")


def _levels(type: pa.DataType, within: str) -> "Iterator[tuple[str, list[str]]]":
    if pat.is_list(type):
        yield from _levels(type.value_type, within)
    elif pat.is_map(type):
        yield from _levels(type.item_type, within)
    elif pat.is_struct(type):
        yield within, [field.name for field in type]
        for field in type:
            yield from _levels(field.type, f" in {field.name}")


# ---- types to text


def ddl(of: "pa.Schema | pa.DataType") -> str:
    """Return a schema or a type as text; Spark and `schema` read it."""
    if isinstance(of, pa.Schema):
        return ", ".join(f"{quoted(field.name)} {ddl(field.type)}" for field in of)
    if pat.is_list(of) or pat.is_large_list(of):
        return f"ARRAY<{ddl(of.value_type)}>"
    if pat.is_map(of):
        return f"MAP<STRING, {ddl(of.item_type)}>"
    if pat.is_struct(of):
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {ddl(field.type)}' for field in of)}>"
    if pat.is_decimal(of):
        return f"DECIMAL({of.precision}, {of.scale})"
    return WORDS[of]


def quoted(name: str) -> str:
    """Return a name as SQL reads it."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name.replace('`', '``')}`"


# ---- columns of the table


def column(name: str, *, top: bool = True) -> str:
    """Return the column of a field: a reserved name gets a `_` at its end; characters that Delta refuses become `_`."""
    name = REFUSED.sub("_", name)
    return f"{name}_" if top and name.lower() in RESERVED else name


def column_type(type: pa.DataType) -> pa.DataType:
    """Return the type of a column; the names of objects in it become names that Delta accepts."""
    if pat.is_list(type):
        return pa.list_(column_type(type.value_type))
    if pat.is_map(type):
        return pa.map_(pa.string(), column_type(type.item_type))
    if pat.is_struct(type):
        return pa.struct([pa.field(column(field.name, top=False), column_type(field.type)) for field in type])
    return type


def columns(found: pa.Schema) -> list[pa.Field]:
    """Return the columns of the fields of a schema."""
    return [pa.field(column(field.name), column_type(field.type)) for field in found]


def silver_schema(found: pa.Schema) -> pa.Schema:
    """Return the schema of a silver table."""
    return pa.schema([*KEY_FIELDS, *columns(found), pa.field(RESCUED, pa.string())])


# ---- JSON Schema

OF_JSON = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
OF_FORMAT = {"date-time": "TIMESTAMP", "date": "DATE"}


def from_json_schema(content: Any) -> pa.Schema:
    """Return the schema of a JSON Schema: an object with `properties`. Raises SchemaError."""
    type = _of_json(content, "the schema", 0)
    if not pat.is_struct(type):
        raise SchemaError('the schema: expected "type": "object" with "properties"')
    found = pa.schema(list(type))
    check(found)
    return found


def _of_json(content: Any, where: str, depth: int) -> pa.DataType:
    if not isinstance(content, dict):
        raise SchemaError(f"{where}: expected an object of JSON Schema")
    if depth > DEPTH_MAX:
        raise SchemaError(f"{where}: more than {DEPTH_MAX} levels")
    word = content.get("type")
    if isinstance(word, list):
        words = [one for one in word if one != "null"]
        word = words[0] if len(words) == 1 else words
    if word == "array":
        return pa.list_(_of_json(content.get("items"), f"items of {where}", depth + 1))
    if word == "object":
        return _of_object(content, where, depth)
    if word == "string" and content.get("format") in OF_FORMAT:
        return PLAIN[OF_FORMAT[content["format"]]]
    if not isinstance(word, str) or word not in OF_JSON:
        expected = ", ".join([*OF_JSON, "array", "object"])
        raise SchemaError(f"{where}: expected one type of {expected}, and null beside it; got {word!r}")
    return PLAIN[OF_JSON[word]]


def _of_object(content: dict[str, Any], where: str, depth: int) -> pa.DataType:
    properties = content.get("properties")
    if isinstance(properties, dict) and properties:
        fields = [pa.field(name, _of_json(one, name, depth + 1)) for name, one in properties.items()]
        if any(not field.name for field in fields):
            raise SchemaError(f"{where}: a name is empty")
        return pa.struct(fields)
    if isinstance(content.get("additionalProperties"), dict):
        return pa.map_(pa.string(), _of_json(content["additionalProperties"], f"values of {where}", depth + 1))
    raise SchemaError(f'{where}: expected "properties" that are not empty')
