-- What the daemon remembers. A migration that was released is never edited: a new one follows it.

-- One row for each sandbox: what can be searched for, and the whole record as JSON.
CREATE TABLE leases (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    name TEXT,
    state TEXT NOT NULL,
    template TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    record TEXT NOT NULL
);

-- Sandboxes without a name do not collide: NULL is no name's equal.
CREATE UNIQUE INDEX leases_by_name ON leases (owner, name);

-- These hold everything that is filtered and sorted by, so that a search reads no records but
-- those of its page.
CREATE INDEX leases_by_owner ON leases (owner, created_at, id, state, template, name);
CREATE INDEX leases_by_creation ON leases (created_at, id, owner, state, template, name);

CREATE TABLE lease_labels (
    lease TEXT NOT NULL REFERENCES leases (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (lease, key)
) WITHOUT ROWID;

CREATE INDEX lease_labels_by_label ON lease_labels (key, value, lease);

-- The hash is hexadecimal, so that it is found by equality in any database.
CREATE TABLE api_keys (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

-- Only the oldest events are ever dropped, so the sequence rises for ever.
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    record TEXT NOT NULL
);

CREATE INDEX events_by_owner ON events (owner, sequence);
CREATE INDEX events_by_sandbox ON events (sandbox, sequence);
