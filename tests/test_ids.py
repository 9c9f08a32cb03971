"""Ids are HMAC-SHA256 over their parts with their lengths, whatever way is the fastest to compute it."""

from __future__ import annotations

import hmac

from hypothesis import given
from hypothesis import strategies as st

from pipelines.ids import Identity


@given(
    st.binary(max_size=150),
    st.lists(st.binary(max_size=300) | st.text() | st.integers(254, 5000).map(lambda n: b"x" * n), max_size=4),
)
def test_an_id_is_the_hmac_of_its_parts_with_their_lengths(key: bytes, parts: list[bytes | str]) -> None:
    told = b"record"
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        told += len(encoded).to_bytes(8, "big") + encoded
    assert Identity(key).of("record", *parts) == f"rec_{hmac.digest(key, told, 'sha256').hex()[:32]}"
