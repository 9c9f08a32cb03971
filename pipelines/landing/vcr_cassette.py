"""Format `vcr_cassette`: HTTP traffic to model APIs as vcrpy (or Ruby's VCR) recorded it for tests, YAML or JSON.

One interaction is one record: the two bodies and the time, without headers, which hold keys. Whose API it was is told by
the bodies, not by the host, since proxies and local servers speak the same. Traffic that is no chat call (files,
embeddings, tokens) is skipped. Bodies may be text, bytes, packed with gzip, or parsed already.
"""

from __future__ import annotations

import email.utils
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.landing import anthropic_messages, openai_chat, openai_responses
from pipelines.landing.calls import Call, bundle_of, conversation_of, facts_of, has_messages, spelled
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_items
from pipelines.landing.format import BadRecord, Bundle, Piece, SourceRecord, Spelled, StoredRecord, Unfinished
from pipelines.landing.head import Head
from pipelines.landing.moments import moment
from pipelines.landing.opening import read_log
from pipelines.landing.pieces import bad, made
from pipelines.landing.shapes import careful, unpacked

_KEYS = ("interactions", "http_interactions")
_BEGINS = re.compile(rb"^(http_)?interactions:[ \t]*\r?$", re.MULTILINE)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class VcrCassette:
    """The format; see LogFormat."""

    name = "vcr_cassette"
    parser_version = 2
    what = "recorded HTTP traffic to OpenAI- or Anthropic-like endpoints (vcrpy, YAML or JSON)"
    gives = frozenset({"model", "logprobs", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """YAML or JSON with a list of interactions, each a request and a response with a `uri`."""
        if _is_json(head):
            return True
        return bool(_BEGINS.search(head.raw)) and all(word in head.raw for word in (b"request:", b"uri:"))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per interaction."""
        head = Head(path)
        if _is_json(head):
            key = next(key for key in _KEYS if key in head.object)
            return split_items(path, start, key, lambda item, _: _facts(item))
        return (piece for piece in _interactions(path) if _is_behind(piece, start))

    def spell(self, value: Any) -> Spelled:
        """The request's messages, then the answers."""
        return spelled(_call(value))

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        return _facts_of(value)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts that these calls are."""
        return bundle_of([(record, _call(record.value)) for record in records])


def _is_json(head: Head) -> bool:
    for key in _KEYS:
        items = head.object.get(key)
        if isinstance(items, list) and items and isinstance(items[0], dict):
            return isinstance(items[0].get("request"), dict) and "uri" in items[0]["request"]
    return False


def _interactions(path: Path) -> Iterator[Piece]:
    """The interactions; what a file that is still being written may go on from is Unfinished: YAML that ends anywhere is
    mostly YAML, so its last interaction is whole for certain only where another key of the file stands behind it."""
    raw = read_log(path)
    try:
        text = raw.decode("utf-8")
        root = yaml.compose(text, Loader=_LOADER)
    except UnicodeDecodeError as problem:
        yield _waiting(bad(raw, 1, 0, BadPieceError("bad_utf8", f"byte {problem.start} is not UTF-8")))
        return
    except (yaml.YAMLError, RecursionError) as problem:
        yield _waiting(bad(raw, 1, 0, BadPieceError("wrong_shape", f"no YAML: {' '.join(str(problem).split())[:200]}")))
        return
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    items = next((value for key, value in pairs if key.value in _KEYS), None)
    if not isinstance(items, yaml.SequenceNode):
        yield _waiting(bad(raw, 1, 0, BadPieceError("wrong_shape", "no list of interactions")))
        return
    open_end = items is pairs[-1][1] and not items.flow_style
    position, characters, line = 0, 0, 1
    for number, node in enumerate(items.value, start=1):
        may_go_on = open_end and number == len(items.value)
        # marks count characters, and the parser counts other line ends than \n too
        begin = position + len(text[characters : node.start_mark.index].encode())
        end = begin + len(text[node.start_mark.index : node.end_mark.index].rstrip().encode())
        line += raw.count(b"\n", position, begin)
        position, characters = begin, node.start_mark.index
        try:
            loader = _LOADER("")
            try:
                value = loader.construct_document(node)
            finally:
                loader.dispose()
            found: SourceRecord | BadRecord = made(_facts(value), None, line=line, begin=begin, end=end)
        except BadPieceError as problem:
            found = bad(raw[begin:end], line, begin, problem)
        except (yaml.YAMLError, RecursionError, ValueError) as problem:
            detail = " ".join(str(problem).split())[:200]
            found = bad(raw[begin:end], line, begin, BadPieceError("wrong_shape", detail))
        yield _waiting(found) if may_go_on else found


def _is_behind(piece: Piece, start: int) -> bool:
    if isinstance(piece, Unfinished) and piece.at_rest is not None:
        return piece.at_rest.byte_end > start
    return piece.byte_start >= start


def _waiting(piece: SourceRecord | BadRecord) -> Unfinished:
    return Unfinished(line=piece.line, byte_start=piece.byte_start, at_rest=piece)


@careful
def _facts(value: Any) -> Facts:
    request = value.get("request") if isinstance(value, dict) else None
    response = value.get("response") if isinstance(value, dict) else None
    if not isinstance(request, dict) or not isinstance(response, dict):
        raise BadPieceError("wrong_shape", "an interaction without request and response")
    kept = {
        "method": _plain(request.get("method")),
        "uri": _plain(request.get("uri")),
        "request": _body(request),
        "response": _body(response),
        "status": _plain(_status(response)),
        "date": _plain(_date(value, response)),
    }
    return _facts_of(kept)


@careful
def _facts_of(kept: dict[str, Any]) -> Facts:
    if not _is_call(kept):
        return Facts(skip_reason="meta", value=kept)
    call = _call(kept)
    read = facts_of(call, vendor_id=call.call_id)
    return Facts(vendor_id=read.vendor_id, bundle_ref=read.bundle_ref, time=read.time, value=kept)


def _is_call(value: dict[str, Any]) -> bool:
    request = value["request"]
    if not isinstance(request, dict):
        return False
    is_responses = openai_responses.is_request(request) and "/responses" in str(value["uri"])
    return has_messages(request) or is_responses


def _call(value: dict[str, Any]) -> Call:
    request, response, status = value["request"], value["response"], value["status"]
    failed = isinstance(status, int) and status >= 400
    if not has_messages(request):
        call = openai_responses.call_of(request, None if failed else response)
    elif anthropic_messages.speaks_anthropic(request) or str(value["uri"]).split("?")[0].endswith("/messages"):
        call = anthropic_messages.call_of(request, None if failed else response)
    else:
        call = openai_chat.call_of(request, None if failed else response)
    if failed:
        call.fault = "model_error"
    call.conversation = conversation_of(request)
    call.ended_at = moment(value["date"]) or call.ended_at
    return call


def _body(message: dict[str, Any]) -> Any:
    """JSON where it is some, else text."""
    if "parsed_body" in message:
        return _plain(message["parsed_body"])
    body = message.get("body")
    if isinstance(body, dict):
        body = body.get("string", body.get("base64_string"))
    if isinstance(body, bytes):
        try:
            body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        except (OSError, EOFError, zlib.error):
            raise BadPieceError("wrong_shape", "a body that cannot be unpacked") from None
        body = body.decode("utf-8", "replace")
    return unpacked(_plain(body).strip()) if isinstance(body, str) else _plain(body)


def _status(response: dict[str, Any]) -> Any:
    status = response.get("status", response.get("status_code"))
    return status.get("code") if isinstance(status, dict) else status


def _date(interaction: dict[str, Any], response: dict[str, Any]) -> str | None:
    """When it was answered: VCR's own note, else the response's header."""
    recorded = interaction.get("recorded_at")
    headers = response.get("headers")
    for name, held in headers.items() if isinstance(headers, dict) else ():
        if recorded is None and str(name).lower() == "date":
            recorded = held[0] if isinstance(held, list) and held else held
    if not isinstance(recorded, str):
        return None
    try:
        return email.utils.parsedate_to_datetime(recorded).isoformat()
    except (ValueError, TypeError):
        found = moment(recorded)
        return None if found is None else found.isoformat()


def _plain(value: Any) -> Any:
    """The value in JSON's types: YAML has dates and bytes too, and text of half characters."""
    if isinstance(value, dict):
        return {str(name): _plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, bool | int | float) or value is None:
        return value if not isinstance(value, int) or abs(value) < 1 << 63 else str(value)
    return str(value)
