-- What rollouts that share names of answers, or an attempt key, are to each other: one row each, with the names of answers that
-- another one owns and who, the trajectory that stands for it where nothing of it is its own, and those it stands for.
-- Handed in: rollouts (trajectories/rollouts without facts; all that are connected by a name or an attempt key).
--
-- Within a format only unique names count. Of several bundles that hold an answer the one owns it whose attempt began first;
-- of equals that whose answers went on last after those that both hold (a copy goes on after what it copied), then the smallest
-- id: none of this changes when a log goes on. A rollout that breaks off before an answer, and whose answers all stand at the
-- same places of a longer one, is that one unfinished: it owns nothing.
-- Across formats every name counts that no two bundles of one format hold after that. All logs of an answer give it to the best
-- of them: exact tokens, a logged outcome, a named model, most answers, most turns, smallest id.
-- An attempt key tells only of a rollout without names: it is the beginning of the longest with the same key, begun at the same
-- moment by its own log, that holds its turns first, where it breaks off and has no outcome.
WITH named AS (
    SELECT
        trajectory_id,
        bundle_key,
        format,
        unnest(names) AS name,
        unnest(name_turns) AS turn,
        unnest(range(len(names))) AS place,
        unnest(range(len(names))) < num_unique AS is_unique
    FROM rollouts
),
alike AS (
    SELECT n.trajectory_id, o.trajectory_id AS other_id, count(*) AS num_alike
    FROM named AS n
    INNER JOIN named AS o ON o.name = n.name AND o.turn = n.turn AND o.format = n.format AND o.bundle_key <> n.bundle_key
    WHERE n.is_unique AND o.is_unique
    GROUP BY n.trajectory_id, o.trajectory_id
),
unfinished AS (
    SELECT DISTINCT a.trajectory_id
    FROM alike AS a
    INNER JOIN rollouts AS r ON r.trajectory_id = a.trajectory_id
    INNER JOIN rollouts AS o ON o.trajectory_id = a.other_id
    WHERE r.is_open AND NOT r.has_outcome AND r.last_turn IS NOT NULL AND a.num_alike = r.num_unique AND o.num_turns > r.num_turns
),
in_format AS (
    SELECT
        n.format,
        n.name,
        first(
            {'owner_id': n.trajectory_id, 'owner_bundle': n.bundle_key, 'owner_turn': n.turn}
            ORDER BY
                n.trajectory_id IN (SELECT u.trajectory_id FROM unfinished AS u),
                r.started_at NULLS LAST,
                list_append(r.answer_times, 'infinity'::TIMESTAMPTZ) DESC,
                n.trajectory_id,
                n.turn
        ) AS owner
    FROM named AS n
    INNER JOIN rollouts AS r ON r.trajectory_id = n.trajectory_id
    WHERE n.is_unique
    GROUP BY n.format, n.name
    HAVING count(DISTINCT n.bundle_key) > 1
),
copied AS (
    SELECT n.trajectory_id, n.turn, first(o.owner ORDER BY n.place) AS owner
    FROM named AS n
    INNER JOIN in_format AS o ON o.format = n.format AND o.name = n.name
    WHERE n.is_unique AND o.owner.owner_bundle <> n.bundle_key
    GROUP BY n.trajectory_id, n.turn
),
kept AS (
    SELECT * FROM named AS n ANTI JOIN copied AS c ON c.trajectory_id = n.trajectory_id AND c.turn = n.turn
),
telling AS (
    SELECT name, format FROM kept GROUP BY name, format HAVING count(DISTINCT bundle_key) = 1
),
places AS (  -- of choices of one answer that say the same, the first only: another log holds one of them
    SELECT k.*
    FROM kept AS k
    SEMI JOIN telling AS t ON t.name = k.name AND t.format = k.format
    QUALIFY row_number() OVER (PARTITION BY k.name, k.bundle_key ORDER BY k.trajectory_id, k.turn) = 1
),
beside AS (
    SELECT DISTINCT p.trajectory_id, p.turn, o.trajectory_id AS other_id, o.turn AS other_turn
    FROM places AS p
    INNER JOIN places AS o ON o.name = p.name AND o.format <> p.format
),
reached AS (  -- two logs that share no kind of id may both share one with a third
    SELECT trajectory_id, turn, other_id, other_turn FROM beside
    UNION
    SELECT b.trajectory_id, b.turn, o.other_id, o.other_turn
    FROM beside AS b
    INNER JOIN beside AS o ON o.trajectory_id = b.other_id AND o.turn = b.other_turn
),
best AS (
    SELECT
        w.trajectory_id,
        w.turn,
        first(
            {'owner_id': w.other_id, 'owner_bundle': r.bundle_key, 'owner_turn': w.other_turn}
            ORDER BY
                r.exact_tokens DESC,
                r.has_outcome DESC,
                r.has_model DESC,
                r.num_sampled_turns DESC,
                r.num_turns DESC,
                r.trajectory_id,
                w.other_turn
        ) AS owner
    FROM reached AS w
    INNER JOIN rollouts AS r ON r.trajectory_id = w.other_id
    GROUP BY w.trajectory_id, w.turn
),
told_elsewhere AS (
    SELECT b.trajectory_id, b.turn, b.owner
    FROM best AS b
    INNER JOIN rollouts AS r ON r.trajectory_id = b.trajectory_id
    WHERE b.owner.owner_bundle <> r.bundle_key
),
foreign_turns AS (
    SELECT trajectory_id, turn, owner FROM told_elsewhere
    UNION ALL
    SELECT c.trajectory_id, c.turn, coalesce(t.owner, c.owner) AS owner
    FROM copied AS c
    LEFT JOIN told_elsewhere AS t ON t.trajectory_id = c.owner.owner_id AND t.turn = c.owner.owner_turn
),
num_named AS (
    SELECT trajectory_id, count(DISTINCT turn) AS num_answers FROM named GROUP BY trajectory_id
),
without_own AS (  -- and all before the last of them was copied with it
    SELECT r.trajectory_id, first(f.owner.owner_id) FILTER (f.turn = r.last_turn) AS keeper_id
    FROM rollouts AS r
    INNER JOIN foreign_turns AS f ON f.trajectory_id = r.trajectory_id
    INNER JOIN num_named AS n ON n.trajectory_id = r.trajectory_id
    GROUP BY r.trajectory_id, n.num_answers
    HAVING count(*) = n.num_answers AND bool_or(f.turn = r.last_turn)
),
begun AS (
    SELECT r.trajectory_id, first(o.trajectory_id ORDER BY o.num_turns DESC, o.trajectory_id) AS keeper_id
    FROM rollouts AS r
    INNER JOIN rollouts AS o
        ON o.attempt_key = r.attempt_key
        AND o.num_turns > r.num_turns
        AND o.started_at = r.started_at
        AND list_contains(o.prefixes, r.prefixes[-1])
    WHERE len(r.names) = 0 AND r.is_open AND NOT r.has_outcome AND r.num_sampled_turns > 0
    GROUP BY r.trajectory_id
),
gone AS (
    SELECT trajectory_id, keeper_id, FALSE AS by_key FROM without_own
    UNION ALL
    SELECT trajectory_id, keeper_id, TRUE AS by_key FROM begun
),
followed AS (
    SELECT g.trajectory_id, g.by_key, coalesce(k.keeper_id, g.keeper_id) AS keeper_id
    FROM gone AS g
    LEFT JOIN gone AS k ON k.trajectory_id = g.keeper_id
),
shares AS (
    SELECT
        f.trajectory_id,
        f.owner.owner_id AS owner_id,
        count(*) AS num_shared,
        bool_or(f.owner.owner_turn = o.last_turn) AS same_end
    FROM foreign_turns AS f
    INNER JOIN rollouts AS o ON o.trajectory_id = f.owner.owner_id
    GROUP BY f.trajectory_id, f.owner.owner_id
),
merged AS (
    SELECT
        g.trajectory_id,
        g.keeper_id,
        CASE
            WHEN g.by_key OR g.trajectory_id IN (SELECT u.trajectory_id FROM unfinished AS u) THEN 'unfinished'
            ELSE 'other_log'
        END AS kind,
        coalesce(s.same_end, FALSE) AS same_end,
        coalesce(s.num_shared, 0) / greatest(n.num_answers, m.num_answers, 1) AS share_of_answers,
        least(r.num_turns / k.num_turns, 1.0) AS share_of_turns
    FROM followed AS g
    INNER JOIN rollouts AS r ON r.trajectory_id = g.trajectory_id
    INNER JOIN rollouts AS k ON k.trajectory_id = g.keeper_id
    LEFT JOIN num_named AS n ON n.trajectory_id = g.trajectory_id
    LEFT JOIN num_named AS m ON m.trajectory_id = g.keeper_id
    LEFT JOIN shares AS s ON s.trajectory_id = g.trajectory_id AND s.owner_id = g.keeper_id
    WHERE g.keeper_id NOT IN (SELECT f.trajectory_id FROM followed AS f)
),
stood_for AS (
    SELECT
        m.keeper_id,
        list(m.trajectory_id ORDER BY r.exact_tokens DESC, r.has_outcome DESC, r.num_sampled_turns DESC, m.trajectory_id) AS other_logs,
        list(
            r.told_id || CASE WHEN m.same_end THEN '' ELSE '-' END
            ORDER BY r.exact_tokens DESC, r.has_outcome DESC, r.num_sampled_turns DESC, m.trajectory_id
        ) AS other_told
    FROM merged AS m
    INNER JOIN rollouts AS r ON r.trajectory_id = m.trajectory_id
    GROUP BY m.keeper_id
),
others AS (
    SELECT
        n.trajectory_id,
        list(n.name ORDER BY n.name) AS copied_call_ids,
        list(f.owner.owner_id ORDER BY n.name) AS copied_from
    FROM named AS n
    INNER JOIN foreign_turns AS f ON f.trajectory_id = n.trajectory_id AND f.turn = n.turn
    GROUP BY n.trajectory_id
)
SELECT
    r.trajectory_id,
    r.bundle_key,
    coalesce(o.copied_call_ids, []) AS copied_call_ids,
    coalesce(o.copied_from, []) AS copied_from,
    m.keeper_id,
    m.kind,
    CASE WHEN m.kind = 'other_log' THEN m.share_of_answers ELSE m.share_of_turns END AS similarity,
    coalesce(s.other_logs, []) AS other_logs,
    coalesce(s.other_told, []) AS other_told
FROM rollouts AS r
LEFT JOIN others AS o ON o.trajectory_id = r.trajectory_id
LEFT JOIN merged AS m ON m.trajectory_id = r.trajectory_id
LEFT JOIN stood_for AS s ON s.keeper_id = r.trajectory_id
ORDER BY r.trajectory_id
