-- What a checkpoint's batches were made under: rubrics, rules of the rewards in force, and whether groups were trained again.
with frozen as (
    select distinct consumed.group_id, consumed.rubric_hash, consumed.again
    from batches.consumed as consumed
    where list_contains($batch_ids, consumed.batch_id)
),

in_force as (
    select rewards.group_id, rewards.rubric_hash, arg_max(rewards.rule, rewards.sequence) as rule
    from rewards.rewards as rewards
    group by rewards.trajectory_id, rewards.group_id, rewards.rubric_hash
)

select
    list_sort(list(distinct frozen.rubric_hash)) as rubric_hashes,
    coalesce(list_sort(list(distinct in_force.rule) filter (where in_force.rule is not null)), []) as rules,
    bool_or(frozen.again) as again
from frozen
left join in_force on frozen.group_id = in_force.group_id and frozen.rubric_hash = in_force.rubric_hash
order by again
