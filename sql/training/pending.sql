-- Batches that are frozen and in no checkpoint yet: what tonight's run trains on.
select
    consumed.batch_id,
    min(consumed.lane) as lane,
    min(consumed.night) as night,
    bool_or(consumed.again) as again
from batches.consumed as consumed
where consumed.batch_id not in (
    select unnest(checkpoints.batches) from checkpoints.checkpoints as checkpoints
)
group by consumed.batch_id
order by consumed.batch_id
