"""Keys and values of a batch, and the attention that reads them.

transformers' own cache grows by copying itself at every token, and its attention copies the key heads for every group of
query heads; at the batch sizes here both cost as much as the model. So: one buffer per layer, made once per batch, in
which columns are filled and finished rows are overwritten by the last ones; and an attention that reads it in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import sdpa_mask

ATTENTION = "nightshift_grouped"
"""Name under which the attention is registered with transformers."""


class BufferedLayer(DynamicLayer):
    """Keys and values of one layer, float [rows, key heads, columns, head width], in a buffer of fixed capacity."""

    def __init__(self, num_rows: int, capacity: int) -> None:
        super().__init__()
        self.num_rows = num_rows
        self.capacity = capacity
        self.num_columns = 0
        self.buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new columns of the first rows behind those that are there; returns views of all columns of these rows."""
        rows, _, added, _ = key_states.shape
        end = self.num_columns + added
        if self.buffers is not None and end > self.capacity:
            self._grow(end)
        for buffer, states in zip(self._buffers_like(key_states, value_states), (key_states, value_states), strict=True):
            buffer[:rows, :, self.num_columns : end] = states
        self.num_columns = end
        self._show(rows)
        return self.keys, self.values  # type: ignore[return-value]  # set by _show

    def fill_prefix(self, keys: torch.Tensor, values: torch.Tensor, num_rows: int) -> None:
        """Start the first rows with the same columns, given once [1, key heads, columns, head width]."""
        for buffer, states in zip(self._buffers_like(keys, values), (keys, values), strict=True):
            buffer[:num_rows, :, : keys.shape[2]] = states
        self.num_columns = keys.shape[2]
        self._show(num_rows)

    def spread(self, source: torch.Tensor) -> None:
        """Row i becomes a copy of row source[i]."""
        for buffer in self.buffers or ():
            buffer[: len(source), :, : self.num_columns] = buffer[source, :, : self.num_columns]

    def move(self, source: list[int], target: list[int]) -> None:
        """Copy rows over others that are not needed any more."""
        for buffer in self.buffers or ():
            buffer[target, :, : self.num_columns] = buffer[source, :, : self.num_columns]

    def prefix(self, num_columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the first columns of row 0."""
        assert self.buffers is not None
        keys, values = (buffer[:1, :, :num_columns].clone() for buffer in self.buffers)
        return keys, values

    def _buffers_like(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.buffers is None:
            self.device, self.is_initialized = keys.device, True
            shape = (self.num_rows, keys.shape[1], self.capacity)
            self.buffers = (keys.new_empty(*shape, keys.shape[3]), values.new_empty(*shape, values.shape[3]))
        return self.buffers

    def _grow(self, needed: int) -> None:
        self.capacity = max(needed, self.capacity * 3 // 2)
        old, self.buffers = self.buffers, None
        assert old is not None
        for new, held in zip(self._buffers_like(*old), old, strict=True):
            new[:, :, : self.num_columns] = held[:, :, : self.num_columns]

    def _show(self, rows: int) -> None:
        assert self.buffers is not None
        self.keys, self.values = (buffer[:rows, :, : self.num_columns] for buffer in self.buffers)


class KeyValues(Cache):
    """Keys and values of one batch over all layers."""

    def __init__(self, num_layers: int, num_rows: int, capacity: int) -> None:
        self.buffered = [BufferedLayer(num_rows, capacity) for _ in range(num_layers)]
        super().__init__(layers=list(self.buffered))

    @property
    def num_columns(self) -> int:
        """Columns that are filled, the same in all layers."""
        return self.buffered[0].num_columns


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention [rows, columns, heads, head width] over fewer key heads than query heads, without copying the keys.

    For one new column the query heads of a key head are laid out as if they were columns, which needs no copy at all.
    """
    rows, heads, columns, width = query.shape
    key_heads = key.shape[1]
    if columns == 1:
        grouped = query.reshape(rows, key_heads, heads // key_heads, width)
        read = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
        return read.reshape(rows, 1, heads, -1), None
    read = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        scale=scaling,
        is_causal=attention_mask is None,
        enable_gqa=heads != key_heads,
    )
    return read.transpose(1, 2).contiguous(), None


def visible_to(visible: torch.Tensor, num_new: int) -> torch.Tensor:
    """Attention mask, bool [rows, 1, new columns, columns]: what each of the last `num_new` columns may read.

    `visible` is bool [rows, columns], false at padding. A padding column reads itself, since an empty softmax is not a number.
    """
    num_columns = visible.shape[1]
    if num_new == 1:
        return visible[:, None, None, :]
    column = torch.arange(num_columns)
    own = column[num_columns - num_new :, None]
    return ((visible[:, None, :] & (column <= own)) | (column == own))[:, None]


def register_attention() -> None:
    """Make ATTENTION known to transformers."""
    AttentionInterface.register(ATTENTION, grouped_attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
