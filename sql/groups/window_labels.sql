-- First days of the windows that groups were sealed in.
SELECT DISTINCT g."window"
FROM groups.groups AS g
WHERE g."role" = 'member'
ORDER BY g."window"
