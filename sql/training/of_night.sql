-- Checkpoints of a night, the one that stands for it first: trained by it, else trained later on batches that it froze.
select
    checkpoints.checkpoint_id,
    checkpoints.version,
    checkpoints.run_id,
    checkpoints.path,
    checkpoints.mlflow_run_id,
    checkpoints.marks,
    list_sort(checkpoints.batches) as batches,
    checkpoints.night = $night as trained_then
from checkpoints.checkpoints as checkpoints
where checkpoints.policy = $policy
  and (
      checkpoints.night = $night
      or list_has_any(
          checkpoints.batches,
          (select coalesce(list(consumed.batch_id), []) from batches.consumed as consumed where consumed.night = $night)
      )
  )
order by trained_then desc, checkpoints.version desc
