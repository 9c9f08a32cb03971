-- Checkpoints of a night, the one that stands for it first: trained by it, else trained later on batches that it froze.
SELECT
    checkpoints.checkpoint_id,
    checkpoints.version,
    checkpoints.run_id,
    checkpoints.path,
    checkpoints.mlflow_run_id,
    checkpoints.marks,
    list_sort(checkpoints.batches) AS batches,
    checkpoints.night = $night AS trained_then
FROM checkpoints.checkpoints AS checkpoints
WHERE checkpoints.policy = $policy
  AND (
      checkpoints.night = $night
      OR list_has_any(
          checkpoints.batches,
          (SELECT coalesce(list(consumed.batch_id), []) FROM batches.consumed AS consumed WHERE consumed.night = $night)
      )
  )
ORDER BY trained_then DESC, checkpoints.version DESC
