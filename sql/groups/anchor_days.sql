-- Days of the attempts that stand as anchors in groups.
SELECT DISTINCT g."day"
FROM groups.groups AS g
WHERE g."role" = 'anchor'
ORDER BY g."day"
