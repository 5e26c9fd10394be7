-- What removal adds up, portable between SQLite and Postgres.

-- name: count
INSERT INTO prune_totals ("table", "rows") VALUES {rows}
ON CONFLICT ("table") DO UPDATE SET "rows" = prune_totals."rows" + excluded."rows"
